"""Tables in, things to look at out.

story.py reads a folder's tables and their analysis. data.py makes the tables that figures draw, and `View`, all that a
figure is given. charts/ is how we draw, figures/ what we draw: each figure is one entry of `FIGURES`. answer.py has the
verdicts at the top of the page, provenance.py its last section, words.py the words of all. page.py puts them into web/
as one HTML file, export.py writes the figures as SVG and PDF, report.py is the call.
"""
