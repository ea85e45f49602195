"use strict";
/* The page's own behaviour: draw every figure when it comes near, link the panels, search and save the tables. */
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), c => c.charCodeAt(0));
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const everything = { all: true };
  const views = new Map();
  const models = linesOf(data.models), axes = document.querySelector(".axes");

  /* ---- figures ---- */

  function linesOf(columns) {
    const names = Object.keys(columns);
    return names.length ? columns[names[0]].map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]]))) : [];
  }

  function tableOf(name) {
    return name === "models" ? models.map(line => ({ ...line })) : linesOf(data.tables[name]);
  }

  const drawings = new Map();

  function draw(place) {
    if (!drawings.has(place)) drawings.set(place, drawn(place));
    return drawings.get(place);
  }

  async function drawn(place) {
    const key = place.dataset.panel, panel = data.panels[key];
    const filled = table => table.name === panel.table || table.name in data.tables ? { ...table, values: tableOf(table.name) } : table;
    const spec = { ...panel.spec, data: panel.spec.data.map(filled) };
    const { view } = await vegaEmbed(place, spec, {
      mode: "vega", renderer: "svg", actions: false, defaultStyle: false, config: data.config,
      ast: true, // expressions are interpreted: the page's policy lets no text become code
      tooltip: (_, event, item, value) => hover(event, value ? panel.hover.map(([field, title, format]) => [title, written(item.datum[field], format)]) : []),
    });
    views.set(key, view);
    refresh(key);
    if (key.startsWith("token_frequency") && found.length) marked(key);
    if (panel.signals.includes("brush")) view.addSignalListener("brush", (_, box) => later(() => brushed(key, box)));
    place.style.containIntrinsicHeight = place.style.minHeight = `${place.querySelector("svg").getAttribute("height")}px`;
    place.dataset.state = "drawn";
  }

  /* ---- signals: what is in sight follows at once, the rest when there is time or when it comes into sight ---- */

  const inSight = new Set();
  let turn = 0;

  function refresh(key) {
    const view = views.get(key), signals = data.panels[key].signals, wanted = { ...state, where: regime(), ...axis() };
    const changed = ["shown", "chosen", "where", "xname", "yname", "xlog", "ylog"].filter(name => signals.includes(name) && view.signal(name) !== wanted[name]);
    for (const name of changed) view.signal(name, wanted[name]);
    if (changed.length) view.runAsync();
  }

  async function refreshAll() {
    const mine = ++turn, rest = [...views.keys()].filter(key => !inSight.has(key));
    for (const key of inSight) if (views.has(key)) refresh(key);
    for (const key of rest) {
      await idle();
      if (mine !== turn) return;
      refresh(key);
    }
  }

  function idle() {
    return new Promise(go => window.requestIdleCallback ? requestIdleCallback(go, { timeout: 500 }) : setTimeout(go));
  }

  /* ---- what hovering says; all of it set as text, never as HTML ---- */

  const bubble = document.createElement("div");
  bubble.className = "bubble";
  bubble.hidden = true;

  function written(value, format) {
    if (typeof value !== "number" || !format) return value === null || value === undefined ? "" : String(value);
    if (format === ",") return value.toLocaleString("en");
    const [, plus, digits, kind] = format.match(/^(\+?)\.(\d)~?([fg])$/);
    const text = kind === "f" ? value.toFixed(digits) : String(Number(value.toPrecision(digits)));
    return (plus && value >= 0 ? "+" : "") + text;
  }

  function hover(event, facts) {
    const known = facts.filter(([, text]) => text !== "");
    bubble.hidden = !known.length;
    if (bubble.hidden) return;
    bubble.replaceChildren(...known.flatMap(([name, text]) => {
      const [key, value] = [document.createElement("span"), document.createElement("b")];
      key.textContent = name; value.textContent = text;
      return [key, value];
    }));
    const { width, height } = bubble.getBoundingClientRect();
    const left = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
    const top = event.clientY + 14 + height > innerHeight ? event.clientY - 14 - height : event.clientY + 14;
    bubble.style.left = `${Math.max(4, left)}px`; bubble.style.top = `${Math.max(4, top)}px`;
  }

  /* ---- which models are shown, and which are marked ---- */

  const state = { shown: everything, chosen: everything, brushing: null };
  const form = document.querySelector(".filters");
  let waiting = null;

  function later(action) {
    if (!waiting) requestAnimationFrame(() => { const next = waiting; waiting = null; next(); });
    waiting = action;
  }

  function visible() {
    return models.filter(line => line.compared && line[data.outcome] !== null && (state.shown.all || state.shown[line.id]));
  }

  function brushed(key, box) {
    const ranges = Object.entries(box || {});
    if (!ranges.length) { if (state.brushing === key) { state.brushing = null; choose(null); } return; }
    if (state.brushing && state.brushing !== key) clearBrush(state.brushing);
    state.brushing = key;
    choose(visible().filter(line => ranges.every(([name, [a, b]]) =>
      line[name] !== null && line[name] >= Math.min(a, b) && line[name] <= Math.max(a, b))));
  }

  function clearBrush(key) {
    const view = views.get(key);
    if (view) view.signal("brush_x", [0, 0]).signal("brush_y", [0, 0]).run();
  }

  function choose(lines) {
    state.chosen = lines ? Object.fromEntries(lines.map(line => [line.id, true])) : everything;
    refreshAll();
    say(lines ? lines.length : null);
  }

  function say(marked) {
    if (!form) return;
    const shown = visible().length;
    form.count.value = `${shown} ${form.mark ? "runs" : "models"} shown` + (marked === null ? "" : `, ${marked} marked`);
  }

  function filter() {
    const wanted = {};
    for (const details of form.querySelectorAll(".filter")) {
      const boxes = [...details.querySelectorAll("input")], on = boxes.filter(box => box.checked);
      if (on.length < boxes.length) wanted[boxes[0].name] = new Set(on.map(box => box.value));
      details.querySelector(".count").textContent = on.length < boxes.length ? `${on.length} of ${boxes.length}` : "";
    }
    const kept = models.filter(line =>
      Object.entries(wanted).every(([name, values]) => values.has(String(line[name]))));
    state.shown = kept.length === models.length ? everything : Object.fromEntries(kept.map(line => [line.id, true]));
    if (state.brushing) { clearBrush(state.brushing); state.brushing = null; }
    mark();
    fits();
    for (const follow of filtered) follow();
  }

  function mark() {
    const text = form.mark ? form.mark.value.trim().toLowerCase() : "";
    choose(text ? visible().filter(line => `${line.run} ${line.name} ${line.checkpoint} ${line.training}`.toLowerCase().includes(text)) : null);
  }

  /* ---- R² of what is shown ---- */

  function squaredCorrelation(pairs) {
    const n = pairs.length;
    if (n < 3) return null;
    const mean = k => pairs.reduce((sum, pair) => sum + pair[k], 0) / n;
    const [a, b] = [mean(0), mean(1)];
    let xx = 0, yy = 0, xy = 0;
    for (const [x, y] of pairs) { xx += (x - a) ** 2; yy += (y - b) ** 2; xy += (x - a) * (y - b); }
    return xx > 0 && yy > 0 ? xy * xy / (xx * yy) : null;
  }

  function fits() {
    const lines = visible();
    for (const place of document.querySelectorAll("[data-fit]")) {
      const panel = data.panels[place.dataset.fit];
      const pairs = lines.filter(line => line[panel.metric] !== null).map(line => [line[data.outcome], line[panel.metric]]);
      const raw = squaredCorrelation(pairs);
      const log = panel.log && pairs.every(pair => pair[1] > 0) ? squaredCorrelation(pairs.map(([x, y]) => [x, Math.log(y)])) : null;
      place.textContent = raw === null ? `${pairs.length} runs: no R²`
        : `R² ${raw.toFixed(2)}` + (log === null ? "" : `, log ${log.toFixed(2)}`) + `, ${pairs.length} runs`;
    }
  }

  /* ---- what the reader chooses: a training, and the axes of a scatter ---- */

  const regimes = document.getElementById("regime");
  const regime = () => regimes ? regimes.value : (data.tables.sizes && data.tables.sizes.where ? data.tables.sizes.where[0] : "");

  function axis() {
    if (!axes) return {};
    const on = { xname: axes.querySelector("[name=x]").value, yname: axes.querySelector("[name=y]").value };
    const spans = name => {
      const values = data.models[name].filter((value, i) => value !== null && models[i].last);
      return values.length > 1 && values.every(value => value > 0) && (data.logarithmic.includes(name) || Math.max(...values) >= 30 * Math.min(...values));
    };
    return { ...on, xlog: spans(on.xname), ylog: spans(on.yname) };
  }

  /* ---- tables ---- */

  function textOf(name) {
    if (name.startsWith("figure:")) return csvOf(name.slice(7) === "models" ? data.models : data.tables[name.slice(7)]);
    return data.saved[name];
  }

  function csvOf(columns) {
    const names = Object.keys(columns), cell = value => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = names.length ? columns[names[0]].map((_, i) => names.map(name => cell(columns[name][i])).join(",")) : [];
    return [names.map(cell).join(","), ...lines].join("\n") + "\n";
  }

  function parsed(text) {
    const lines = [[]];
    let cell = "", quoted = false;
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (quoted) {
        if (c === '"' && text[i + 1] === '"') { cell += '"'; i++; } else if (c === '"') quoted = false; else cell += c;
      } else if (c === '"') quoted = true;
      else if (c === ",") { lines.at(-1).push(cell); cell = ""; }
      else if (c === "\n") { lines.at(-1).push(cell); cell = ""; lines.push([]); }
      else if (c !== "\r") cell += c;
    }
    if (cell || lines.at(-1).length) lines.at(-1).push(cell); else lines.pop();
    return { names: lines[0] || [], lines: lines.slice(1) };
  }

  function shownNumber(text, digits, grouped) {
    const number = Number(text);
    if (grouped && Number.isInteger(number)) return number.toLocaleString("en");
    return Number.isInteger(number) ? text.replace(/\.0$/, "") : String(Number(number.toPrecision(digits)));
  }

  const filtered = []; // what else follows the filters

  function tableViewer(root) {
    const pick = root.querySelector("[name=table]"), search = root.querySelector("[name=search]");
    const more = root.querySelector("[name=more]"), count = root.querySelector("[name=lines]");
    const head = root.querySelector("thead"), body = root.querySelector("tbody");
    const PAGE = 20;
    let table = { names: [], lines: [] }, numeric = [], sort = null, limit = PAGE;
    const chosen = () => pick ? pick.value : root.dataset.table;
    const hiddenColumn = name => !pick && name === "id"; // of the overview, to which the filters apply

    function open() {
      table = parsed(textOf(chosen()));
      numeric = table.names.map((_, i) => table.lines.some(line => line[i] !== "") &&
        table.lines.every(line => line[i] === "" || (line[i].trim() !== "" && !Number.isNaN(Number(line[i])))));
      sort = null; limit = PAGE; search.value = "";
      const row = document.createElement("tr");
      table.names.forEach((name, i) => {
        if (hiddenColumn(name)) return;
        const cell = document.createElement("th"), button = document.createElement("button");
        cell.scope = "col"; button.type = "button"; button.textContent = pick ? name : name.replaceAll("_", "_\u200b"); // long names may break
        if (numeric[i]) cell.className = "number";
        button.addEventListener("click", () => { sort = sort && sort.column === i ? { column: i, way: -sort.way } : { column: i, way: 1 }; show(); });
        cell.dataset.column = i;
        cell.append(button); row.append(cell);
      });
      head.replaceChildren(row);
      show();
    }

    function found() {
      const words = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      const id = pick ? -1 : table.names.indexOf("id"), within = line => id < 0 || state.shown.all || state.shown[line[id]];
      const lines = table.lines.filter(line => { const text = line.join(" ").toLowerCase(); return within(line) && words.every(word => text.includes(word)); });
      if (id >= 0) choose(words.length ? models.filter(model => lines.some(line => Number(line[id]) === model.id)) : null);
      if (!sort) return lines;
      const { column, way } = sort, value = line => numeric[column] ? Number(line[column]) : line[column];
      return lines.sort((a, b) => {
        if (a[column] === "" || b[column] === "") return (a[column] === "") - (b[column] === ""); // what is missing comes last
        const [x, y] = [value(a), value(b)];
        return way * (numeric[column] ? x - y : x.localeCompare(y, undefined, { numeric: true }));
      });
    }

    function show() {
      const lines = found();
      [...head.querySelectorAll("th")].forEach(cell => {
        if (sort && sort.column === Number(cell.dataset.column)) cell.setAttribute("aria-sort", sort.way > 0 ? "ascending" : "descending"); else cell.removeAttribute("aria-sort");
      });
      body.replaceChildren(...lines.slice(0, limit).map(line => {
        const row = document.createElement("tr");
        line.forEach((text, i) => {
          if (hiddenColumn(table.names[i])) return;
          const cell = document.createElement("td");
          cell.textContent = numeric[i] && text !== "" ? shownNumber(text, pick ? 6 : 3, !pick) : text;
          cell.className = numeric[i] ? "number" : text.length > 48 ? "long" : "";
          row.append(cell);
        });
        return row;
      }));
      count.value = `${Math.min(limit, lines.length)} of ${lines.length} lines`;
      more.hidden = lines.length <= limit;
    }

    function save() {
      const from = chosen(), name = from.startsWith("figure:") ? `figure-${from.slice(7).replaceAll(" ", "-")}.csv` : from;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([textOf(from)], { type: "text/csv" }));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    if (pick) pick.addEventListener("change", open);
    if (!pick) filtered.push(show);
    search.addEventListener("input", () => { limit = PAGE; show(); });
    more.addEventListener("click", () => { limit += 4 * PAGE; show(); });
    root.querySelector("[name=save]").addEventListener("click", save);
    open();
  }

  /* ---- tokens: searched among all of them, marked in every panel; neighbours of a chosen one ---- */

  let found = []; // tokens that are marked in the panels of token_frequency

  function marked(key) {
    const view = views.get(key);
    view.data("tokens found", found.map(line => ({ ...line }))).runAsync();
  }

  function tokenSearch(root) {
    const find = root.find, order = root.order, count = root.count, [list, near] = root.querySelectorAll(".scroll > table");
    const SHOWN = 50, MARKED = 300, SKIPPED = new Set(["token", "nearest"]);
    let tokens = null, byId = new Map();

    function open() {
      const table = parsed(textOf(root.dataset.table));
      const texts = new Set(["text", "kind"]);
      tokens = table.lines.map(line => Object.fromEntries(table.names.map((name, i) =>
        [name, texts.has(name) ? line[i] : line[i] === "" ? null : Number(line[i])])));
      byId = new Map(tokens.map(token => [token.token, token]));
      order.replaceChildren(...table.names.filter(name => !texts.has(name) && !SKIPPED.has(name)).flatMap(name =>
        [1, -1].map(way => {
          const option = document.createElement("option");
          option.value = `${name} ${way}`; option.textContent = `${name}, ${way > 0 ? "smallest" : "largest"} first`;
          option.selected = name === "count" && way < 0;
          return option;
        })));
    }

    function fill(table, lines, names) {
      const row = document.createElement("tr");
      row.append(...names.map(name => { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = name === "text" ? "token" : name; return cell; }));
      table.tHead.replaceChildren(row);
      table.tBodies[0].replaceChildren(...lines.map(token => {
        const row = document.createElement("tr");
        row.append(...names.map(name => {
          const cell = document.createElement("td");
          if (name === "text") {
            const button = document.createElement("button");
            button.type = "button"; button.textContent = token.text;
            button.addEventListener("click", () => choose(token));
            cell.append(button);
          } else {
            cell.textContent = token[name] === null ? "–" : typeof token[name] === "number" ? written(token[name], name === "count" ? "," : ".4g") : token[name];
            if (typeof token[name] === "number") cell.className = "number";
          }
          return cell;
        }));
        return row;
      }));
    }

    function search() {
      const text = find.value.toLowerCase(), [name, way] = order.value.split(" ");
      const found = text ? tokens.filter(token => token.text.toLowerCase().includes(text)) : [];
      found.sort((a, b) => a[name] === null || b[name] === null ? (a[name] === null) - (b[name] === null) : way * (a[name] - b[name]));
      list.parentElement.hidden = !text;
      count.value = text ? `${found.length.toLocaleString("en")} of ${tokens.length.toLocaleString("en")} tokens` + (found.length > SHOWN ? `, ${SHOWN} listed` : "") : "";
      fill(list, found.slice(0, SHOWN), ["text", "kind", "count", ...Object.keys(tokens[0]).filter(key => !["text", "kind", "count"].includes(key) && !SKIPPED.has(key))]);
      markTokens(found.slice(0, MARKED));
    }

    function markTokens(lines) {
      found = lines.map(line => ({ ...line }));
      for (const key of views.keys()) if (key.startsWith("token_frequency")) marked(key);
    }

    function choose(token) {
      const around = tokens.filter(other => other !== token && (other.token === token.nearest || other.nearest === token.token));
      const lines = around.map(other => ({ ...other, why: other.token === token.nearest ? "its nearest" : "nearest to it", distance: other.token === token.nearest ? token.distance : other.distance }));
      lines.sort((a, b) => (a.distance ?? Infinity) - (b.distance ?? Infinity));
      near.closest(".near").hidden = false;
      near.closest(".near").querySelector("h4").textContent = `Neighbours of ${token.text} (${token.kind})` + (lines.length ? "" : ": none among these classes");
      fill(near, lines.map(line => byId.get(line.token) ? { ...line } : line), ["text", "why", "distance", "kind", "count", "cdnv"]);
      markTokens([token, ...around]);
    }

    find.addEventListener("input", () => later(search));
    order.addEventListener("change", () => later(search));
    root.addEventListener("submit", event => event.preventDefault());
    return open();
  }

  /* ---- the page ---- */

  function theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  }

  const places = [...document.querySelectorAll("[data-panel]")];
  const hidden = place => place.closest("details:not([open])") || place.closest(".tabbed > .tab:not(.current)");

  /* ---- tabs: one section at a time, named by the address ---- */

  const tabs = document.querySelector(".tabs"), bar = document.querySelector(".bar");

  function openTab(id, { scroll = false } = {}) {
    const sections = [...tabs.children], wanted = document.getElementById(id);
    const current = sections.find(section => wanted && section.contains(wanted)) || sections[0];
    for (const section of sections) section.classList.toggle("current", section === current);
    for (const link of bar.querySelectorAll("a")) {
      if (link.hash === `#${current.id}`) { link.setAttribute("aria-current", "true"); link.scrollIntoView({ block: "nearest", inline: "nearest" }); } else link.removeAttribute("aria-current");
    }
    if (scroll && bar.getBoundingClientRect().top <= 0) scrollTo(0, tabs.getBoundingClientRect().top + scrollY - bar.offsetHeight);
    return drawAll();
  }

  function tabbed() {
    tabs.classList.add("tabbed");
    bar.addEventListener("click", event => {
      const link = event.target.closest("a");
      if (!link) return;
      event.preventDefault();
      history.replaceState(null, "", link.hash);
      openTab(link.hash.slice(1), { scroll: true });
    });
    addEventListener("hashchange", () => openTab(location.hash.slice(1)));
    openTab(location.hash.slice(1));
  }

  function met(place, near) {
    const key = place.dataset.panel;
    if (!near) { inSight.delete(key); return; }
    inSight.add(key);
    if (views.has(key)) refresh(key); else draw(place);
  }

  async function drawAll() {
    for (const place of places) if (!hidden(place)) await draw(place);
  }

  async function drawTheRest() {
    for (const place of places) {
      if (hidden(place)) continue;
      if (!drawings.has(place)) await idle();
      await draw(place);
    }
    for (let i = 0; i < places.length; i++) { // laid out too, for pictures of the whole page
      if (i % 8 === 0) await idle();
      places[i].style.contentVisibility = "visible";
    }
    document.documentElement.dataset.drawn = "all";
  }

  async function begin() {
    document.body.append(bubble);
    document.getElementById("theme").addEventListener("click", theme);
    for (const details of document.querySelectorAll("details.more")) details.addEventListener("toggle", drawAll);
    if (axes) axes.addEventListener("change", refreshAll);
    if (form) {
      form.addEventListener("change", filter);
      if (form.mark) form.mark.addEventListener("input", mark);
      form.addEventListener("reset", () => setTimeout(filter));
      form.addEventListener("submit", event => event.preventDefault());
      document.addEventListener("click", event => {
        for (const open of form.querySelectorAll("details[open]")) if (!open.contains(event.target)) open.open = false;
      });
      fits();
      say(null);
    }
    if (regimes) regimes.addEventListener("change", refreshAll);
    const near = new IntersectionObserver(seen => seen.forEach(one => met(one.target, one.isIntersecting)), { rootMargin: "400px" });
    places.forEach(place => near.observe(place));
    addEventListener("beforeprint", () => {
      if (tabs) tabs.classList.remove("tabbed");
      for (const details of document.querySelectorAll("details.more")) if (!details.querySelector("[data-panel]")) details.open = true;
      drawAll();
    });
    if (tabs) addEventListener("afterprint", () => tabs.classList.add("tabbed"));
    for (const tables of document.querySelectorAll(".tables")) tableViewer(tables);
    for (const search of document.querySelectorAll(".token-search")) tokenSearch(search);
    if (tabs) tabbed();
    await drawTheRest();
  }

  window.collapselab = { data, models, views, state, drawAll };
  begin();
})();
