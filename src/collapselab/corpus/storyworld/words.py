"""The vocabulary of `storyworld`: word lists, the most usual word first.

A list is drawn by rank with Zipf-like weights, so its order is its statistics: put a common word early and a rare one
late. Entries are separated by commas. An entry must fit every sentence that draws from its list, hence lists by
grammatical use (`sweets` are plural, `soup` has no article), not by topic.
"""

NAMES = {
    "girl": """
Lily, Mia, Anna, Emma, Ruby, Ella, Sophie, Lucy, Zoe, Nora, Maya, Grace, Clara, Ivy, Rosa, Alice, Molly, Hannah,
Daisy, Amy, Sara, Eva, Kate, Julia, Leah, Mary, Olivia, Chloe, Jane, Tess, Maria, Ada, Nina, Lena, Hazel, Poppy,
Holly, Elsie, Amara, Freya, Greta, Ines, Layla, Naomi, Priya, Aisha, Yuki, Mei, Lola, Stella, Flora, Edith, Martha,
Agnes, Ingrid, Astrid, Camila, Carmen, Celia, Cleo, Cora, Dora, Della, Delia, Esme, Esther, Etta, Eliza, Fatima,
Fiona, Frances, Gemma, Gloria, Gwen, Harriet, Heidi, Helen, Imogen, Irene, Isla, Jasmine, Joan, Josie, Kira, Laura,
Leila, Linnea, Lottie, Louisa, Luna, Lydia, Mabel, Maeve, Matilda, Millie, Mina, Miriam, Nadia, Nell, Odette, Olga,
Paloma, Pearl, Phoebe, Petra, Rachel, Ramona, Rhea, Rosalind, Roxana, Sabine, Salma, Selma, Sienna, Signe, Sonia,
Susan, Sylvia, Tabitha, Talia, Tamar, Thea, Tilda, Tova, Uma, Ursula, Vera, Viola, Wanda, Wilma, Winnie, Xenia,
Yara, Yasmin, Zadie, Zara, Zelda, Zuri, Adele, Agatha, Akiko, Alma, Amina, Anouk, Antonia, Araminta, Aurelia,
Beatrix, Bettina, Birgit, Blanche, Bronwyn, Calliope, Candela, Cecily, Chiara, Clementine, Constance, Cordelia,
Cosima, Dagmar, Damaris, Delphine, Demelza, Dorothea, Eleni, Elodie, Elowen, Eudora, Evangeline, Felicity, Fenella,
Fleur, Georgina, Ginevra, Gudrun, Guinevere, Henrietta, Hermia, Hilda, Honora, Idunn, Ilse, Iolanthe, Isadora,
Isolde, Jemima, Juno, Katya, Keziah, Lavinia, Leonie, Liesl, Lisbet, Lucinda, Ludmila, Maddalena, Marguerite,
Marigold, Marit, Melisande, Minerva, Morwenna, Nerys, Niamh, Octavia, Oona, Ophelia, Ottilie, Pandora, Perdita,
Philippa, Primrose, Romilly, Rowena, Saffron, Saskia, Seraphina, Sidonie, Solveig, Sunniva, Svetlana, Tamsin,
Theodora, Thisbe, Tirzah, Valentina, Verity, Wilhelmina, Winifred, Xanthe, Ysolde, Zenobia, Zinnia""",
    "boy": """
Tim, Ben, Max, Tom, Sam, Leo, Jack, Noah, Finn, Oscar, Theo, Luke, Henry, Oliver, Jacob, Peter, Adam, Daniel, Owen,
Eli, David, Simon, Felix, Hugo, Milo, Toby, Charlie, Lucas, Nico, Joe, George, Harry, Omar, Ravi, Kofi, Ali, Diego,
Mateo, Jonas, Emil, Axel, Anton, Arthur, Alfie, Billy, Caleb, Carlos, Colin, Conor, Dylan, Edgar, Elias, Ethan,
Evan, Ezra, Frank, Fred, Gabriel, Gus, Hamish, Hassan, Hiro, Ian, Isaac, Ivan, Jamal, James, Jasper, Jesse, Johan,
Jonah, Jude, Julian, Karl, Kenji, Kurt, Lars, Levi, Liam, Logan, Louis, Magnus, Malik, Marco, Martin, Miguel, Moses,
Nathan, Neil, Nils, Olaf, Otis, Otto, Pablo, Patrick, Paul, Pedro, Percy, Philip, Quentin, Ralph, Raphael, Rory,
Rufus, Samir, Scott, Sean, Seth, Silas, Stefan, Sven, Tariq, Thomas, Tobias, Tomas, Tyler, Victor, Vikram, Walter,
Wesley, Yusuf, Zach, Ambrose, Anders, Angus, Archie, Arlo, Aziz, Balthazar, Barnaby, Bartholomew, Basil, Benedict,
Bertram, Bjorn, Boris, Bruno, Casimir, Caspian, Cedric, Chester, Clarence, Clement, Cosmo, Crispin, Cyril, Cyrus,
Dashiell, Desmond, Dmitri, Duncan, Edmund, Elliot, Emrys, Enzo, Eoin, Ephraim, Erasmus, Eugene, Ferdinand, Fergus,
Florian, Francis, Gareth, Gideon, Giles, Godfrey, Grigor, Gunther, Gustav, Hector, Horatio, Hubert, Ignatius, Igor,
Inigo, Isidore, Ismael, Jarvis, Joaquin, Jocelyn, Kaspar, Killian, Lachlan, Lazlo, Leander, Leopold, Linus, Lorcan,
Lorenzo, Lysander, Marius, Maximilian, Merlin, Montgomery, Mortimer, Nikolai, Octavio, Odin, Orlando, Osbert,
Oswald, Ptolemy, Quincy, Radomir, Rasmus, Reginald, Reuben, Roderick, Roland, Rupert, Sebastian, Septimus, Sigmund,
Solomon, Sylvester, Tadeusz, Tarquin, Thaddeus, Theodore, Tiberius, Ulysses, Umberto, Valentin, Vaughan, Virgil,
Wendell, Wilbur, Wolfgang, Xavier, Yorick, Zebedee, Zoltan""",
    "creature": """
Pip, Bramble, Clover, Nutmeg, Biscuit, Pepper, Rusty, Tumble, Honey, Thistle, Button, Fern, Muffin, Pebble, Sorrel,
Bracken, Dusty, Acorn, Tansy, Juniper, Cricket, Whisker, Nibbles, Mossy, Teasel, Barley, Figgy, Snuffle, Fidget,
Pumpkin, Bristle, Conker, Dandelion, Flax, Chestnut, Burdock, Sage, Dilly, Twitch, Truffle, Pickle, Scamper,
Hickory, Rowan, Dumpling, Tuppence, Pockets, Crumpet, Mallow, Yarrow, Bilberry, Marjoram, Quillon, Tarragon, Huckle,
Periwinkle, Sniffkin, Tatterby, Whortle, Fennick, Bumbleby, Mugwort, Parsnip, Wigwag, Oddkin, Trundle, Gooseberry,
Nettlewick""",
    "kin_girl": "Mom, Grandma, Mama, Mother, Granny, Nana, Mommy, Gran, Grandmother",
    "kin_boy": "Dad, Grandpa, Papa, Father, Daddy, Gramps, Grandad, Pops, Grandfather",
    "title_girl": "Mrs., Miss, Old Mrs., Granny, Auntie, Madame, Doctor, Widow, Captain",
    "title_boy": "Mr., Old Mr., Captain, Doctor, Farmer, Uncle, Professor, Colonel, Squire",
    "surname": """
Brown, Green, Bell, Plum, Hill, Baker, Miller, Wood, Reed, Rose, Lane, Potter, Finch, Marsh, Berry, Stone, Snow,
Cook, Fisher, Hart, West, Park, Lopez, Garcia, Kim, Lee, Patel, Singh, Chen, Novak, Rossi, Silva, Moreau, Weber,
Olsen, Larsen, Murphy, Kelly, Adler, Applegate, Archer, Ashby, Barlow, Barnes, Beech, Birch, Blackwood, Bloom,
Bonnet, Bridges, Brook, Butterfield, Buttons, Carver, Chandler, Cooper, Cotton, Crumb, Dahl, Dunn, Eriksen,
Fairweather, Farrow, Fennel, Flint, Foster, Frost, Gardener, Goldberg, Goodwin, Grove, Haddad, Hale, Hansen,
Hawthorne, Heath, Hobbs, Holloway, Hopkins, Horvath, Ibrahim, Ito, Jansen, Kapoor, Keller, Kowalski, Lark, Lindgren,
Loom, Malone, Marlowe, Mayfield, Meadows, Mensah, Merriweather, Moon, Mwangi, Nakamura, Nettle, Nightingale, Oakley,
Okafor, Orchard, Osei, Papadakis, Peabody, Pemberton, Penny, Petrov, Pettigrew, Pickering, Pond, Popov, Quill,
Quimby, Ramirez, Rivers, Robins, Rutherford, Sandoval, Sato, Schneider, Shaw, Shepherd, Sparrow, Spencer, Sterling,
Summers, Swift, Tailor, Tanaka, Thorne, Thimble, Tran, Twigg, Underhill, Vance, Wainwright, Walsh, Webster,
Whistler, Whittaker, Wick, Willow, Winter, Wren, Wu, Yamamoto, Yilmaz, Young, Abernathy, Bagshaw, Bickerstaff,
Bobbin, Brocklehurst, Bumblecroft, Cattermole, Chumley, Clutterbuck, Cobbledick, Dinwiddie, Dobbins, Drinkwater,
Entwhistle, Featherstone, Figgis, Fotheringay, Fossdyke, Gillespie, Goosetree, Grimthorpe, Hathersage, Higginbottom,
Hollingberry, Honeychurch, Jellicoe, Kettlewell, Larkspur, Lillywhite, Longbottom, Mapplebeck, Micklethwait, Mudge,
Nankervis, Oddy, Ollerenshaw, Pennyfeather, Postlethwaite, Puddifoot, Quartermain, Ramsbottom, Satterthwaite,
Shufflebotham, Snodgrass, Sowerbutts, Tattersall, Thistlewood, Tiddlewick, Trelawney, Ufton, Venables, Wagstaff,
Weatherspoon, Wigglesworth, Winterbottom, Woolgar, Yardley, Zellweger""",
    "village": """
Greenfield, Riverside, Maple Hill, Oak Hollow, Millbrook, Sunny Bay, Willow Creek, Appleton, Foxbury, Stonebridge,
Elm Corner, Cloverdale, Redwick, Ashford, Bailey Green, Birchwood, Bluewater, Brambleby, Brookside, Buttercup Lane,
Cherry Dell, Cobblestone Row, Copperfield, Crow Hill, Daleham, Dunmore, Eastwick, Fernley, Goosewater, Harbor Point,
Hazelmere, Heatherton, Hollybank, Honeywell, Ivybridge, Kingsbrook, Lambley, Larkhill, Little Wending, Lower
Dipping, Marshby, Mossbank, Netherby, Otterbourne, Owlsworth, Shingle Cove, Pinewood, Plumstead, Puddleton, Quarry
End, Rabbit Down, Ravensby, Rookhaven, Rosedale, Saltmarsh, Seagate, Shepton, Silverlake, Snowdrop Vale,
Sparrowfield, Springwell, Swanmere, Tanglewood, Thistledown, Tillingham, Turnipshire, Upper Dipping, Wagtail, Walnut
Grove, Warrenby, Westerly, Whistledown, Windermoor, Woolcombe, Yewbarrow, Applecross, Bagpuddle, Cranleydale,
Dovercombe, Fiddlesham, Gullhaven, Hattersby, Inchcolm, Jackdaw Ness, Kelpsea, Lanternby, Mumblethorpe, Nuthatch,
Oxenholt, Pennywhistle, Quagmere, Ramblethwaite, Skipwick, Thrushcombe, Umberleigh, Vinnicombe, Wobbleton, Zennorby""",
    "boat": """
Sea Star, Little Gull, Blue Dolphin, Merry Wind, Silver Fish, Brave Duck, Lucky Penny, Morning Light, Sally, Red
Herring, White Swan, Sunflower, Happy Otter, Old Bess, Grey Heron, Rainbow, Swift, Marigold, Nimbus, Albatross,
Bonny Jean, Calypso, Cormorant, Curlew, Daydreamer, Endeavour, Galatea, Gannet, Halcyon, Kittiwake, Lapwing,
Mermaid, Neptune, Osprey, Pelican, Persephone, Plover, Quicksilver, Sandpiper, Seabird, Shearwater, Tern,
Thunderbolt, Valiant, Wanderer, Whimbrel, Zephyr""",
}

WORDS = {
    # People: how they are and feel.
    "nature": """
kind, curious, cheerful, clever, brave, shy, quiet, lively, gentle, friendly, playful, thoughtful, helpful, careful,
funny, stubborn, polite, patient, dreamy, bold, busy, eager, messy, noisy, forgetful, merry, honest, generous,
bright, sensible, adventurous, bashful, chatty, daring, determined, earnest, easygoing, energetic, fearless,
fidgety, good-natured, headstrong, imaginative, impatient, independent, inventive, jolly, keen, kindhearted,
lighthearted, loyal, mischievous, modest, nimble, observant, optimistic, outgoing, plucky, practical, proud,
reliable, resourceful, restless, sociable, softhearted, solemn, spirited, sprightly, studious, talkative,
tenderhearted, tidy, trusting, warmhearted, witty, absentminded, ambitious, artistic, carefree, cautious,
compassionate, conscientious, dainty, diligent, enterprising, exuberant, gallant, impish, industrious, ingenious,
inquisitive, levelheaded, methodical, musical, obliging, persistent, quizzical, rambunctious, scatterbrained,
tenacious, unflappable, vivacious, wistful, zany""",
    "glad": """
happy, glad, proud, excited, pleased, delighted, cheerful, thrilled, joyful, content, merry, grateful, thankful,
overjoyed, relieved, lighthearted, jolly, satisfied, hopeful, elated, blissful, jubilant, tickled, gleeful, radiant,
ecstatic, exultant""",
    "sad": """
sad, upset, unhappy, gloomy, lonely, disappointed, sorry, miserable, glum, downhearted, tearful, heavy-hearted,
heartbroken, forlorn, crestfallen, dejected, mournful, woeful, despondent, disheartened, doleful, inconsolable""",
    "cross": """
angry, cross, mad, grumpy, annoyed, furious, upset, grouchy, sulky, bitter, indignant, huffy, irritated, snappish,
crabby, livid, resentful, irate, peevish, petulant, cantankerous""",
    "scared": """
scared, afraid, frightened, nervous, worried, terrified, uneasy, anxious, shaky, alarmed, jumpy, timid, startled,
fearful, jittery, tense, panicky, petrified, apprehensive, skittish""",
    "tired": """
tired, sleepy, weary, drowsy, worn out, exhausted, ready for bed, dozy, footsore, heavy-eyed, bleary, pooped,
bushed, listless""",
    "surprised": """
surprised, amazed, astonished, startled, puzzled, stunned, speechless, bewildered, baffled, astounded,
flabbergasted, dumbfounded, thunderstruck""",
    # How things are done.
    "softly": """
softly, quietly, gently, kindly, calmly, warmly, slowly, shyly, cheerfully, politely, seriously, thoughtfully,
tenderly, sweetly, patiently, simply, sleepily, dreamily, hopefully, earnestly, solemnly, soothingly, mildly,
mysteriously, wistfully, brightly, wisely, gravely, amiably, sagely""",
    "quickly": """
quickly, fast, at once, right away, in a hurry, without a word, as fast as possible, straight away, without
stopping, in no time, swiftly, hastily, promptly, briskly, nimbly, headlong, immediately, breathlessly, like the
wind, like an arrow, lickety-split, full tilt, helter-skelter, posthaste, like greased lightning""",
    "carefully": """
carefully, slowly, gently, very slowly, with great care, patiently, with both hands, bit by bit, neatly, little by
little, quietly, steadily, cautiously, tenderly, attentively, gingerly, delicately, inch by inch, one step at a
time, nervously, diligently, meticulously, painstakingly, deftly, daintily""",
    "went": """
walked, ran, went, hurried, skipped, raced, marched, rushed, wandered, strolled, dashed, trotted, hopped, set off,
headed, scampered, bounced, tiptoed, trudged, galloped, tramped, jogged, ambled, bounded, scurried, sprinted,
stomped, sped, sauntered, hiked, plodded, hastened, scooted, traipsed, romped, roamed, meandered, pranced, scuttled,
hobbled, clattered, frolicked, moseyed, gamboled, cantered""",
    "said": "said, said, said, declared, remarked, announced",
    "answered": "answered, said, replied",
    "asked": "asked, asked, asked, wondered, inquired",
    "cried": """
cried, shouted, called, yelled, exclaimed, cheered, gasped, laughed, sang out, squealed, burst out, whooped,
hollered, squeaked, shrieked, roared, bellowed, crowed, piped up, trumpeted""",
    "called": "called, cried, shouted, yelled, exclaimed, gasped, hissed, hollered",
    "wailed": "cried, wailed, called, sobbed, gasped, groaned, howled, moaned, whimpered, blubbered",
    "snapped": "shouted, cried, yelled, snapped, screamed, growled, roared, hissed, bellowed, stormed, snarled",
    "whispered": "whispered, murmured, mumbled, breathed, whispered, muttered, sniffled, croaked",
    "laughed": """
laughed, giggled, smiled, chuckled, grinned, beamed, laughed out loud, burst out laughing, chortled, snickered,
tittered, guffawed, snorted with laughter, cackled""",
    "looked": """
looked, peeked, searched, hunted, peered, checked, poked around, felt, rummaged, groped, ferreted, snooped""",
    "big": """
big, huge, large, great, enormous, gigantic, massive, mighty, immense, towering, whopping, colossal, tremendous,
mammoth, hulking, gargantuan, humongous, prodigious""",
    "small": """
small, little, tiny, wee, teeny, miniature, pocket-sized, little bitty, minute, dainty, pint-sized, minuscule,
dinky, diminutive""",
    "fine": """
wonderful, lovely, beautiful, fine, nice, great, marvelous, perfect, splendid, special, delightful, pretty,
fantastic, magnificent, superb, glorious, charming, grand, terrific, fabulous, remarkable, dazzling, exquisite,
stupendous, sublime, resplendent""",
    "tasty": """
tasty, yummy, delicious, sweet, warm, fresh, good, scrumptious, crumbly, sticky, buttery, mouthwatering, juicy,
heavenly, homemade, luscious, flavorful, delectable, toothsome""",
    "old": "old, very old, ancient, aged, elderly, white-haired, grey-haired, wrinkled, venerable, silver-haired",
    # Time and weather.
    "day": "Saturday, Sunday, Monday, Friday, Wednesday, Tuesday, Thursday",
    "season": "summer, spring, autumn, winter",
    "month": "June, May, April, July, September, March, October, August, November, February",
    "weather": """
sunny, windy, warm, cold, bright, cloudy, rainy, hot, cool, misty, chilly, foggy, breezy, clear, fine, gray, damp,
golden, mild, crisp, blustery, drizzly, dewy, muggy, balmy, gusty, hazy, nippy, sultry, overcast, squally,
sweltering, dreary, brisk, tempestuous""",
    "fair": """
sunny, bright, warm, fine, clear, golden, mild, crisp, breezy, dewy, glorious, cloudless, balmy, cool, hazy""",
    "daytime": "morning, afternoon, day, evening",
    "while": """
a long time, a while, an hour, a whole hour, ten minutes, half the morning, most of the day, quite some time, a
minute or two, five long minutes, what felt like forever, the whole afternoon, nearly two hours, ages and ages, a
quarter of an hour""",
    "number": """
three, two, five, four, seven, six, ten, twelve, nine, eight, eleven, twenty, fifteen, thirteen, thirty, forty""",
    "age": "five, six, seven, four, eight, nine",
    # Looks of things.
    "look_c": """
red, blue, green, yellow, purple, pink, orange, white, brown, striped, black, spotted, golden, bright red, dark
blue, shiny, light green, silver, grey, rainbow, violet, turquoise, cream, scarlet, pale blue, crimson, lilac, tan,
emerald, sky-blue, lavender, maroon, peach, navy, speckled, ruby, checkered, mint-green, ivory, bronze, indigo,
rosy, teal, lemon-yellow, copper, apricot, beige, olive, mustard, magenta, coral, plum-colored, aquamarine, amber,
khaki, sapphire, burgundy, snow-white, jet-black, mauve, fawn, russet, cobalt, fuchsia, ochre, azure, chartreuse,
sepia, umber, vermilion, cerulean, taupe, ecru, periwinkle, tangerine, cinnabar, sienna, cerise, heliotrope,
celadon, carmine, saffron-yellow, mahogany, chestnut, tawny, slate-gray, charcoal, puce, viridian, damson,
malachite, gamboge""",
    "look_m": """
shiny, silver, golden, brass, old, tiny, bright, polished, dented, rusty, copper, tarnished, gleaming, worn, heavy,
bronze, ornate, engraved, tin, pewter, burnished, filigreed, nickel-plated""",
    "look_w": """
wooden, painted, old, little, bright, red, blue, green, carved, polished, handmade, yellow, scratched, varnished,
oak, pine, birch, walnut, maple, bamboo, cedar, ebony, rosewood, teak""",
    "look_s": """
soft, fluffy, woolly, cozy, furry, warm, patchwork, faded, knitted, striped, velvet, cuddly, shaggy, well-loved,
threadbare, plush, corduroy, crocheted, flannel, tweed, tattered, downy, quilted, gingham, tasseled, moth-eaten""",
    # Living things.
    "bird": """
robin, sparrow, crow, blackbird, owl, pigeon, dove, blue jay, seagull, magpie, woodpecker, swallow, starling, wren,
finch, duck, goose, thrush, lark, jackdaw, raven, hawk, cuckoo, heron, cardinal, kestrel, kingfisher, nightingale,
chickadee, bluebird, goldfinch, wagtail, bullfinch, hummingbird, nuthatch, rook, quail, oriole, lapwing, grouse,
curlew, dipper, warbler, skylark, waxwing, plover, snipe, siskin, linnet, tern, mockingbird, chaffinch, sandpiper,
cormorant, bunting, partridge, pheasant, egret, stork, crane, whippoorwill, redstart, grosbeak, fieldfare,
yellowhammer, bittern, moorhen, pipit, crossbill, goldcrest, treecreeper, corncrake, brambling, dunnock, nightjar,
hoopoe, ptarmigan, tanager, phoebe, vireo, junco, killdeer, bobolink, avocet, wheatear, stonechat, whinchat,
capercaillie, wryneck, dotterel""",
    "beast": """
rabbit, squirrel, mouse, fox, hedgehog, frog, toad, deer, mole, badger, cat, turtle, hare, lizard, chipmunk,
raccoon, otter, snail, beaver, rat, ferret, weasel, porcupine, field mouse, newt, dormouse, stoat, marten, shrew,
vole, skunk, salamander, opossum, marmot, muskrat, gopher, woodchuck, polecat, natterjack, pine marten, slowworm""",
    "farm_animal": """
cow, hen, pig, sheep, horse, goat, donkey, pony, rooster, lamb, calf, goose, turkey, duckling, sheepdog, bull,
piglet, foal, ram, billy goat, mule, gander, heifer, guinea fowl, alpaca, llama, bantam, ox""",
    "far_animal": """
lion, elephant, tiger, giraffe, monkey, bear, zebra, whale, crocodile, camel, penguin, kangaroo, panda, hippo, wolf,
gorilla, leopard, walrus, ostrich, rhinoceros, cheetah, koala, polar bear, flamingo, moose, buffalo, parrot, jaguar,
yak, sloth, hyena, baboon, octopus, chimpanzee, antelope, armadillo, reindeer, gazelle, platypus, anteater, tapir,
meerkat, lemur, narwhal, mongoose, wombat, bison, gibbon, orangutan, pangolin, lynx, toucan, iguana, okapi, dingo,
aardvark, wolverine, emu, puffin, wildebeest, chinchilla, capybara, manatee, ocelot, echidna, tamarin, caracal,
kudu, quokka, axolotl, kinkajou, cassowary, dugong, impala, coati, pademelon""",
    "insects": """
bees, butterflies, ants, ladybugs, dragonflies, beetles, grasshoppers, crickets, moths, bumblebees, fireflies,
flies, gnats, spiders, caterpillars, midges, damselflies, mayflies, hoverflies, water striders, earwigs, katydids,
lacewings, cicadas, whirligigs, honeybees, aphids, weevils, hornets, mantises""",
    "fish": """
goldfish, trout, minnow, carp, perch, pike, catfish, salmon, eel, stickleback, tadpole, bass, sunfish, herring,
flounder, mackerel, roach, crab, shrimp, tench, sardine, guppy, bream, cod, bluegill, crayfish, sprat, gudgeon,
loach, lobster, starfish, dace, anchovy, halibut, haddock, whelk, lamprey, grayling, sculpin, burbot""",
    "flowers": """
roses, daisies, tulips, sunflowers, buttercups, violets, daffodils, bluebells, dandelions, poppies, pansies, lilies,
marigolds, snowdrops, primroses, lilacs, crocuses, geraniums, forget-me-nots, foxgloves, irises, peonies,
carnations, hollyhocks, hyacinths, asters, snapdragons, lupins, cornflowers, petunias, zinnias, dahlias, cowslips,
nasturtiums, sweet peas, begonias, hydrangeas, orchids, chrysanthemums, magnolias, camellias, anemones, harebells,
wallflowers, azaleas, gladioli, columbines, delphiniums, fuchsias, busy lizzies, lobelias, phlox, verbenas, oxeye
daisies, campions, hellebores, gentians, edelweiss, celandines, speedwells, stocks, larkspurs, oxlips, scabious,
agapanthus, ranunculus, saxifrages, fritillaries, amaryllis, sweet williams""",
    "tree": """
oak, apple tree, willow, pine, maple, birch, cherry tree, elm, chestnut tree, pear tree, beech, plum tree, fir,
walnut tree, poplar, ash, linden, cedar, hazel, spruce, rowan, fig tree, sycamore, yew, alder, hawthorn, larch,
aspen, hickory, holly, mulberry tree, olive tree, cypress, juniper, acacia, redwood, dogwood, magnolia, hornbeam,
quince tree, ginkgo, blackthorn, tamarack, buckthorn, catalpa, medlar, monkey puzzle tree, laburnum""",
    # Things to eat and drink.
    "fruit": """
apples, berries, pears, plums, cherries, strawberries, oranges, bananas, grapes, peaches, blueberries, raspberries,
blackberries, lemons, apricots, melons, figs, nuts, raisins, pineapples, walnuts, gooseberries, mangoes, hazelnuts,
currants, dates, cranberries, tangerines, limes, rhubarb stalks, nectarines, chestnuts, pomegranates, mulberries,
kiwis, quinces, huckleberries, elderberries, grapefruits, almonds, damsons, papayas, boysenberries, clementines,
cloudberries, kumquats, greengages, persimmons, loganberries, crab apples, lychees, guavas, pomelos, tayberries,
bilberries, satsumas, lingonberries""",
    "greens": """
carrots, peas, beans, potatoes, tomatoes, onions, cabbages, pumpkins, turnips, beets, radishes, cucumbers, leeks,
lettuces, mushrooms, peppers, corn cobs, squashes, spinach leaves, parsnips, celery sticks, cauliflowers, zucchinis,
sweet potatoes, garlic bulbs, broccoli stems, eggplants, artichokes, asparagus tips, shallots, swedes, lentils,
chickpeas, kale leaves, brussels sprouts, marrows, yams, scallions, runner beans, kohlrabi, chard leaves, rutabagas,
celeriac roots, salsify roots""",
    "spice": """
salt, sugar, cinnamon, pepper, honey, butter, vanilla, mint, parsley, ginger, thyme, basil, nutmeg, dill, chives,
rosemary, cloves, oregano, garlic, sage, cocoa, lemon peel, paprika, bay leaf, sesame, poppy seed, cardamom,
caraway, marjoram, mustard, saffron, turmeric, cumin, coriander, fennel seed, tarragon, aniseed, chervil, lovage,
sumac, molasses, treacle, tamarind""",
    "sweet_spice": """
sugar, cinnamon, honey, vanilla, butter, cocoa, ginger, nutmeg, lemon peel, cloves, cardamom, molasses, almond oil,
aniseed, orange peel, brown sugar, maple syrup, caraway, allspice, treacle""",
    "cake": """
cake, pie, chocolate cake, apple pie, cherry pie, coconut cake, birthday cake, carrot cake, pancake, lemon cake,
honey cake, plum tart, sponge cake, pudding, nut cake, strawberry tart, blueberry pie, waffle, trifle, pumpkin pie,
gingerbread house, cheesecake, cream puff, peach cobbler, banana loaf, custard tart, raisin loaf, rhubarb crumble,
fruitcake, coffee cake, marble cake, apple strudel, poppy seed cake, walnut loaf, jelly roll, meringue, upside-down
cake, sachertorte, pavlova, battenberg, panettone, baklava, brioche, simnel cake, clafoutis, croquembouche,
frangipane tart, parkin, bundt cake""",
    "soup": """
soup, stew, tomato soup, porridge, vegetable soup, chicken soup, bean soup, pea soup, potato soup, oatmeal, pumpkin
soup, rice pudding, noodle soup, carrot soup, onion soup, barley soup, lentil soup, mushroom soup, chowder, leek
soup, goulash, macaroni, broth, beet soup, chili, cabbage stew, hotpot, curry, risotto, dumpling soup, nettle soup,
minestrone, ragout, gumbo, borscht, ramen, succotash, polenta, gazpacho, bouillabaisse, semolina, mulligatawny""",
    "sweets": """
cookies, buns, pancakes, muffins, biscuits, cupcakes, jam tarts, candies, doughnuts, scones, sandwiches, honey
cakes, waffles, gingerbread men, dumplings, cinnamon rolls, oat cakes, lollipops, brownies, crackers, sugar plums,
pretzels, toffees, chocolates, rolls, marshmallows, cream puffs, macaroons, caramels, nut bars, jelly beans,
fritters, crumpets, lemon drops, peppermints, tarts, shortbreads, wafers, eclairs, fudge squares, flapjacks,
licorice sticks, turnovers, gumdrops, pasties, meringues, butterscotch drops, popovers, bonbons, snickerdoodles,
madeleines, churros, humbugs, blinis, truffles, barley sugars, rusks, profiteroles, florentines, nougats, petits
fours, sherbet lemons, crullers, lebkuchen, amaretti""",
    "drink": """
milk, tea, lemonade, hot chocolate, apple juice, water, cocoa, orange juice, warm milk, honey tea, cider, mint tea,
grape juice, buttermilk, ginger beer, plum juice, raspberry cordial, tomato juice, elderflower water, chamomile tea,
carrot juice, root beer, pear nectar, rose-hip tea, barley water, sarsaparilla, malted milk, eggnog, birch water,
dandelion tea, currant cordial, verbena tea""",
    # Things to own, use and see.
    "trinkets": """
shells, stones, buttons, coins, feathers, stamps, marbles, leaves, pine cones, ribbons, bottle caps, acorns,
pebbles, stickers, keys, postcards, beads, pencils, corks, bells, seeds, keychains, badges, crayons, maps, toy cars,
spoons, bones, string balls, candles, matchboxes, magnets, thimbles, chestnuts, labels, tickets, nails, snail
shells, fossils, crystals, teacups, springs, whistles, puppets, paper clips, erasers, rubber bands, safety pins,
dominoes, playing cards, dice, chess pieces, tassels, sequins, buckles, patches, medals, pressed flowers,
photographs, envelopes, bookmarks, spools, brushes, charms, bracelets, pinwheels, hinges, doorknobs, cogs, gears,
bolts, washers, screws, lenses, prisms, spectacles, wishbones, eggshells, sea glass, driftwood carvings, shark
teeth, sand dollars, cowries, limpets, cockles, mussels, periwinkles, burrs, catkins, pods, gourds, husks, galls,
sycamore wings, cocoons, chrysalises, wing cases, honeycombs, quills, antlers, horseshoes, cowbells, sleigh bells,
wicker hoops, tin soldiers, clay pots, lanterns, wax seals, inkwells, blotters, nibs, scrolls, bobbins, skeins,
doilies, pompoms, rosettes, epaulettes, cufflinks, brooches, lockets, signet rings, trinket boxes, snow globes,
figurines, matryoshkas, kaleidoscopes, spinning tops, jacks, yo-yos, kazoos, ocarinas, castanets, tuning pegs,
bookplates, bus tokens, luggage tags, ration books, bicycle lamps, hubcaps, valves, fuses, sparkplugs, ball
bearings, thermometers, hourglasses, compasses, sextants, astrolabes, arrowheads, flints, geodes, agates, garnets,
opals, jaspers, moonstones, tourmalines, amethysts, ammonites, trilobites, belemnites, mothballs, napkin rings,
eggcups, tea strainers, sugar tongs, corkscrews, cookie cutters, jelly molds, pepper mills, nutcrackers, trivets,
decanters""",
    "curio": """
music box, clock, lantern, mirror, lamp, globe, teapot, vase, painting, rug, mask, basket, trunk, telescope,
birdcage, mug, rocking chair, kettle, candlestick, bell, pocket watch, rocking horse, typewriter, jug, pitcher,
umbrella, suitcase, radio, camera, piano, barrel, stool, wheelbarrow, ladder, fishing rod, weather vane, compass,
spyglass, hourglass, spinning wheel, sewing machine, cuckoo clock, dollhouse, chessboard, drum, saddle, anchor, ship
in a bottle, treasure chest, map of the world, quilt, tapestry, chandelier, fire bucket, cradle, sled, butter churn,
washboard, coal scuttle, oil lamp, flatiron, magic lantern, gramophone, bugle, hunting horn, sundial, barometer,
abacus, microscope, magnifying glass, metronome, top hat, feather fan, parasol, walking stick, snuffbox, inkstand,
globe on a stand, stuffed owl, coat of arms, suit of armor, helmet, shield, oar, lifebelt, ship's wheel, figurehead,
hammock, harpoon, lobster pot, fishing net, milk churn, beehive, scarecrow, garden gnome, birdbath, watering can,
hatstand, grandfather clock, bookcase, wardrobe, footstool, washstand, warming pan, samovar, tea caddy, mortar and
pestle, cheese press, cider press, mousetrap, bellows, anvil, horse collar, wagon wheel, penny-farthing, unicycle,
tricycle, perambulator, sedan chair, hot-air balloon, windsock, orrery, zoetrope, kaleidoscope, stereoscope,
phonograph, hurdy-gurdy, barrel organ, puppet theater, totem pole, ostrich egg, narwhal tusk, boomerang, didgeridoo,
blunderbuss, catapult, crossbow, gauntlet, chalice, goblet, tankard, tureen, gravy boat, fondue pot, waffle iron,
pasta machine, ear trumpet, monocle, lorgnette, wig stand, bootjack, shoehorn, letter opener, paperweight, blotting
pad, quill pen, wax tablet, clay tablet, papyrus, hieroglyph, sarcophagus, obelisk, gargoyle, sphinx, mosaic,
fresco, sampler, antimacassar, bell jar, terrarium, aquarium, vivarium, planisphere, theodolite, sextant,
chronometer, seismograph, stethoscope, centrifuge, bunsen burner, retort, crucible, turnstile, drawbridge,
portcullis, trapdoor, dumbwaiter, escritoire, chiffonier, credenza, ottoman, settee, chaise longue, pouffe,
palanquin""",
    "tool": """
hammer, broom, spade, rake, bucket, saw, ladder, shovel, basket, brush, rope, hoe, paintbrush, mop, lantern,
screwdriver, wrench, wheelbarrow, needle, pair of scissors, drill, trowel, ax, pair of pliers, watering can, file,
crowbar, pitchfork, plane, tape measure, chisel, dustpan, feather duster, garden hose, mallet, sickle, pulley,
funnel, plunger, spirit level, pickax, toolbox, clamp, scythe, sieve, jack, soldering iron, spanner, awl, gimlet,
hacksaw, hatchet, whetstone, winch, paring knife, rolling pin, ladle, whisk, bradawl, mattock, dibber, billhook,
adze, plumb line, spokeshave, caliper, trammel""",
    "cloth": """
wool, cotton, paper, silk, velvet, felt, cardboard, string, linen, ribbon, lace, denim, yarn, canvas, leather,
tinfoil, flannel, satin, tissue paper, corduroy, sackcloth, gingham, tweed, burlap, muslin, calico, chiffon,
taffeta, tulle, oilcloth, cheesecloth, hessian, damask, brocade, organza, raffia, moleskin, seersucker""",
    "garment": """
hat, coat, scarf, sweater, jacket, apron, cap, dress, shawl, cardigan, raincoat, vest, straw hat, cloak, bobble hat,
bow tie, bonnet, cape, waistcoat, jumper, necktie, beret, robe, poncho, kilt, top hat, tunic, nightcap, overcoat,
smock, blazer, sun hat, sou'wester, turban, bowler hat, kimono, sari, anorak, dressing gown, fez, balaclava, parka,
pinafore, tam-o'-shanter, duffel coat, fisherman's jersey, sombrero, cravat, ruff, cummerbund, boater, trilby""",
    "trade": """
farmer, baker, mail carrier, teacher, gardener, shopkeeper, policeman, fisherman, doctor, nurse, firefighter,
painter, carpenter, librarian, cook, sailor, bus driver, tailor, milkman, butcher, shepherd, miller, window cleaner,
musician, builder, photographer, street sweeper, vet, barber, shoemaker, florist, clown, dentist, plumber,
beekeeper, blacksmith, potter, watchmaker, knitter, hunter, juggler, captain, pilot, engineer, chimney sweep,
tinker, weaver, cobbler, ferryman, magician, poet, judge, grocer, ranger, woodcutter, dancer, electrician,
locksmith, mechanic, candle maker, basket maker, gravedigger, lighthouse keeper, piano tuner, roofer, bricklayer,
glassblower, bookbinder, hatter, saddler, thatcher, fishmonger, cheesemonger, greengrocer, peddler, balloon seller,
ragman, fortune-teller, acrobat, trapeze artist, puppeteer, organ grinder, town crier, night watchman, stonemason,
wheelwright, cooper, cartwright, falconer, gamekeeper, swineherd, goatherd, drover, farrier, milliner, seamstress,
lacemaker, draper, perfumer, pharmacist, optician, astronomer, geologist, botanist, archaeologist, cartographer,
meteorologist, professor, bishop, mayor, ambassador, conductor, violinist, cellist, sculptor, silversmith,
goldsmith, clockmaker, toymaker, confectioner, chandler, cutler, tanner, dyer, fuller, ostler, apothecary, scribe,
minstrel, jester, cooper's boy, ventriloquist, taxidermist, philatelist, lepidopterist""",
    "instrument": """
drum, flute, guitar, violin, piano, trumpet, recorder, whistle, harp, banjo, accordion, fiddle, bell, tambourine,
harmonica, horn, triangle, xylophone, cello, ukulele, trombone, clarinet, pipe, organ, mandolin, tuba, saxophone,
bagpipe, oboe, lute, bugle, zither, cymbal, concertina, double bass, viola, kazoo, glockenspiel, piccolo, bassoon,
lyre, balalaika, sitar, marimba, dulcimer, penny whistle, bodhran, kalimba, ocarina, euphonium, harpsichord,
bouzouki, cornet, gong, spinet, celesta, theremin, shamisen, vuvuzela""",
    "vehicle": """
bus, train, car, truck, bicycle, cart, boat, tractor, wagon, tram, van, sled, taxi, ferry, steam train, motorcycle,
fire engine, ice cream van, scooter, horse and cart, milk float, delivery van, canoe, airplane, rowboat, camper,
trolley, hay wagon, sailboat, tugboat, dump truck, helicopter, carriage, steamroller, barge, cement mixer, balloon,
crane truck, raft, paddle steamer, snowplow, sidecar, fishing smack, stagecoach, hovercraft, rickshaw, sleigh,
dinghy, catamaran, gondola, funicular, locomotive, velocipede, dirigible, charabanc, schooner, cutter, punt, trawler""",
    "game": """
hide-and-seek, tag, catch, pirates, hopscotch, house, football, cards, school, knights and dragons, marbles, shop,
leapfrog, explorers, jump rope, soccer, checkers, doctor, dominoes, follow-the-leader, space travelers, baseball,
ping-pong, blind man's buff, snap, circus, detectives, musical chairs, king of the hill, red rover, tug-of-war,
chess, charades, badminton, croquet, sardines, spies, snakes and ladders, skittles, kickball, capture the flag, old
maid, tiddlywinks, backgammon, quoits, grandmother's footsteps, conkers, pick-up sticks, jacks, pall-mall,
shuttlecock, parcheesi""",
    "hobby": """
drawing, reading, climbing trees, singing, painting, running, dancing, building things, counting things, looking at
the stars, telling stories, playing in the mud, picking flowers, collecting stones, asking questions, watching
birds, making things, jumping in puddles, exploring, playing tricks, baking, riding, fishing, swinging, feeding the
birds, making up songs, watching clouds, digging holes, whistling, dressing up, doing puzzles, listening to old
stories, rolling down hills, skating, sewing, gardening, chasing butterflies, inventing machines, playing chess,
drawing maps, learning new words, camping, looking under stones, pressing flowers, carving wood, folding paper,
sliding on ice, pretending to be a knight, knitting, juggling, writing letters, catching tadpoles, blowing bubbles,
stargazing, beachcombing, birdwatching, reciting poems, writing in a diary, tightrope walking, yodeling,
stilt-walking, whittling, weaving, cartwheeling, somersaulting, hiking, cloud-spotting, embroidering, bell ringing,
tap dancing, daydreaming, stamp collecting, hoop rolling, doodling, crocheting""",
    "land": """
Africa, India, China, Spain, Egypt, Italy, Japan, Brazil, Greece, Mexico, France, Norway, Canada, Peru, Kenya,
Iceland, Australia, Turkey, Holland, Scotland, Ireland, Russia, Portugal, Morocco, Chile, Finland, Alaska, Poland,
Greenland, Nepal, Tibet, Cuba, Jamaica, Hungary, Persia, Vietnam, Ghana, Bolivia, Samoa, Tonga, Madagascar,
Patagonia, Lapland, Borneo, Sumatra, Zanzibar, Mongolia, Siberia, Sardinia, Tasmania, Bohemia, Ethiopia, Uruguay,
Fiji, Corsica, Crete, Timbuktu, Samarkand""",
    "book": """
dragons, pirates, animals, a princess, the sea, the stars, a lost bear, knights, a talking horse, trains, a magic
ring, ghosts, dinosaurs, a clever fox, the moon, three brothers, a giant, a tiny elf, far countries, a mermaid,
robots, a desert island, an old wizard, two mice, outer space, a snow queen, a flying carpet, a witch, treasure, a
brave tailor, a golden goose, trolls, unicorns, volcanoes, a secret garden, a wooden puppet, explorers, a lonely
lighthouse, submarines, castles, a phoenix, mummies, a runaway cheese, comets, a griffin, a sleepy king, a cat in
boots, leprechauns, a kraken, goblins, centaurs, a minotaur, glaciers, gladiators, a basilisk, mammoths, whirlpools,
a toad prince, gnomes, a yeti, samurai, vikings""",
    "dream": """
flying, the sea, a castle made of sugar, a big blue whale, dancing bears, the moon, a ship with golden sails, a
talking tree, riding a cloud, a river of lemonade, tiny elephants, a friendly dragon, a garden of stars, snow in
summer, a train to the moon, singing fish, a forest of lollipops, a house on stilts, a polite tiger, an island of
pancakes, balloons, a whale in a hat, umbrellas that flew, a mountain of pillows, an orchestra of frogs, a moonlit
carousel, penguins on bicycles, a marmalade sea""",
    "sound": """
bang, crash, thump, splash, crack, snap, pop, thud, rustle, squeak, creak, boom, click, rattle, clang, plop, bump,
buzz, whoosh, clatter, ding, scratch, tap, hiss, crunch, rumble, hoot, jingle, clink, growl, howl, clunk, swish,
gurgle, whirr, sizzle, twang, squelch, screech, wheeze, clonk, splat, fizz, plink, tinkle, patter, zing, kerplunk,
thwack, rat-a-tat, ker-boom""",
    "fabled": """
dragon, pirate, fairy, knight, giant, wizard, mermaid, queen, king, robot, ghost, princess, elf, troll, unicorn,
explorer, witch, gnome, superhero, goblin, sea monster, astronaut, cowboy, viking, genie, ogre, phoenix, pharaoh,
samurai, pixie, imp, centaur, yeti, griffin, sphinx, leprechaun, sorcerer, sultan, gladiator, werewolf, dryad,
kraken, cyclops, banshee""",
    "pet": """
cat, dog, puppy, kitten, goldfish, hamster, rabbit, parrot, guinea pig, turtle, canary, pony, hen, mouse, budgie,
lizard, goat, tortoise, duck, snail, rat, ferret, gerbil, cockatoo, hedgehog, gecko, chinchilla, iguana, stick
insect, macaw, chameleon""",
    "pet_name": """
Spot, Fluffy, Snowy, Socks, Buddy, Ginger, Coco, Patch, Rex, Lucky, Whiskers, Tiger, Misty, Goldie, Smoky, Shadow,
Peanut, Cookie, Mittens, Domino, Rascal, Bubbles, Marmalade, Scruffy, Waffles, Pickles, Noodle, Tinker, Captain,
Duchess, Sherlock, Figaro, Gizmo, Pudding, Admiral, Bandit, Caramel, Dumpty, Edison, Fudge, Goblin, Hiccup, Inky,
Jumbo, Kipper, Licorice, Mozart, Napoleon, Oreo, Pancake, Quackers, Rhubarb, Sprocket, Toffee, Umbra, Velcro,
Wotsit, Yo-Yo, Ziggy, Archimedes, Beethoven, Copernicus, Galileo, Nebuchadnezzar, Pythagoras, Rumpelstiltskin""",
    "house": """
small, little, yellow, white, red, crooked, old, blue, green, tall, cozy, stone, brick, tiny, wooden, narrow, quiet,
sunny, pink, thatched, whitewashed, ramshackle, rambling, ivy-covered, timbered, drafty, gabled, lopsided,
half-timbered, snug""",
    "near": """
the river, the forest, the sea, the park, a hill, the old mill, the school, the church, the market, a big field, the
lake, the railway, the edge of town, the bridge, an orchard, the station, the harbor, the canal, the library, the
bakery, the castle, the lighthouse, the windmill, the quarry, the fire station, the vineyard, a waterfall, the
observatory, the shipyard, the moor, the brickyard, the aqueduct, the tannery, the monastery, the toll bridge, the
salt flats""",
    "den": """
under the roots of a tree, in a cozy burrow, in a hollow log, at the edge of the forest, near a stream, beside the
pond, under a hedge, in a mossy bank, behind the waterfall, at the foot of a hill, in an old stump, among the ferns,
in a thicket, below the old mill, in a dry ditch, under a heap of stones, between two boulders, at the end of the
meadow""",
    "simile": """
as happy as a lark, as proud as a peacock, as light as a feather, as bright as a button, as fresh as a daisy, as
right as rain, as merry as a cricket, as pleased as punch, as free as the wind, as fit as a fiddle, as tall as a
tower, as snug as a bug, as rich as a king, as brave as a lion, as warm as toast, as good as gold, as strong as an
ox""",
    "trait_child": """
was {age} years old and loved {hobby}; was {nature} and {nature2}, and nobody in {village} was better at {hobby};
had {look_c} boots, {a_nature} heart, and a box full of {trinkets}; was {age} years old, and {his} best friend was
{friend}; had freckles, {a_nature} smile, and {a_pet} named {pet_name}; was almost {age} years old and wanted to
become {a_trade}; wanted to know everything about {book}; had a secret: {he} wanted to become {a_trade}; could not
sit still for a minute; lived {home} and wanted to see {land} one day; was the {nature} one in a family of {number};
was {age} years old and had never been farther than {village}""",
    "trait_creature": """
was {a_nature} {kind} with {a_look_c} coat; was the smallest {kind} in the whole wood; loved {hobby} more than
{fruit}; had soft fur, quick feet, and {a_nature} heart; lived {home} and had never seen the sea; was {a_kind} with
long whiskers; was {a_nature} {kind}, and {nature2} as well; lived {home} and collected {trinkets}; liked {weather}
days and {fruit} for supper; was {a_kind} who wanted to become {a_trade}; was {nature} by day and {tired} by night""",
    "home_child": """
in {a_house} house near {near}; in {a_house} house in {village}; in {village}; near {near}; on a farm outside
{village}; above a shop in {village}; at the end of a lane in {village}; on the {floor} floor of a tall house; next
to {near}; in {a_house} cottage behind a hedge of {flowers}; among the {flowers} of {village}; on the road to
{village}""",
    "home_creature": """
{den}; {den}; {den} near {village}; {den} not far from {village}; {den}; {den} among the {flowers}""",
    "household_child": """
with {kin}; with {kin} and {a_pet} named {pet_name}; with {kin} and {a_pet}; with {kin} and {number} brothers; with
{kin}, {a_pet}, and a great many {trinkets}; with {kin} and two sisters; with a big family and {a_pet} named
{pet_name}""",
    "household_creature": """
with {kin}; with {kin} and {number} brothers and sisters; with {kin} and a heap of {fruit}; all alone with {kin}""",
    "thing_many": "balls, kites, toys, books, drums, dolls, whistles, marbles, crowns, bells, puppets, treasures",
    "litter": """
an old boot; a wet leaf; a rusty {tool}; {a_bird} feather; {number} snails; a bent spoon; an empty bottle; a lost
sock; some {trinkets}; a candy wrapper; a cold puddle; {a_look_c} button; a spider; half a cookie; a broken {curio};
one glove; a sleepy {beast}; a nutshell; a wet {garment}; {fruit} that somebody had dropped; {number} ants; a scrap
of {cloth}""",
    "teacher": "Miss {surname2}; Mr. {surname2}; Mrs. {surname2}",
    "keeper": "Mrs. {surname2}; Mr. {surname2}; Old Mr. {surname2}",
    "work": """
swept the yard; washed the dishes; fed the {farm_animal}; picked {fruit}; walked the dog; sold {drink} by the road;
carried letters; weeded the {greens}; polished the {trinkets}; stacked wood; watered the {flowers}; cleaned the
henhouse; painted a fence; raked leaves; sorted {trinkets}; brushed the {farm_animal}; carried water; shelled peas;
mended {a_garment}; sharpened pencils; beat the rugs; chopped {greens}; sang songs on the corner; oiled the hinges;
wound wool; plucked {flowers}; scrubbed {a_curio}; caught snails; churned butter; shined shoes; whitewashed a wall""",
    "to": "to the {place}",
    "crack": "crack, snap, crunch, pop, rip, twang, crackle, ping, scrunch",
    "crash": "crash, bang, thud, clatter, bump, clang, smash, thwack, clonk, wallop",
    "boom": "boom, crash, rumble, bang, crack, roar, clap, growl, thunderclap",
    "clonk": "thump, clunk, clonk, thud, clink, knock, scrape, clank, tock",
    "hush": """
rustle, scratch, squeak, patter, tap, creak, whisper, rattle, sniff, crackle, clink, swish, flutter, snuffle,
scrabble, tinkle, peep, chirr, pitter-patter""",
    "floor": "top, first, second, third, fourth, fifth, ground",
    "hour": "three, four, six, seven, eight, nine, ten, eleven, five, twelve",
    "few": "two, three, four, five",
    "plenty": "ten, eight, twelve, nine, fifteen, twenty, thirteen, sixteen, eighteen, nineteen, seventeen",
    "while_days": """
a week, many days, two weeks, many weeks, a whole month, ten days, three weeks, the rest of the month, a fortnight""",
    "stirred": "stirred, mixed, kneaded, beat, rolled out, whipped, tasted, pummeled",
    "deeply": """
deeply, soundly, well, at once, quickly, peacefully, like a stone, like a log, like a top, late, blissfully""",
    "transport": """
bus, train, car, boat, tram, ferry, steam train, taxi, cart, bicycle, coach, rowboat, sled, milk train, night train,
canoe, horse and cart, hay wagon, sailboat, airplane, barge, trolley, motorboat, cable car, stagecoach, rickshaw,
funicular, sleigh""",
    "herd": """
sheep, lions, elephants, tigers, bears, monkeys, wolves, whales, camels, penguins, snakes, goats, sharks, zebras,
giraffes, ghosts, crocodiles, kangaroos, cows, owls, hippos, spiders, foxes, bats, walruses, leopards, pandas,
flamingos, moose, llamas, ostriches, gorillas, reindeer, buffaloes, scorpions, octopuses, hyenas, panthers,
vultures, rhinos, piranhas, yaks, tapirs""",
    "fabled_folk": """
dragons, giants, pirates, witches, ghosts, trolls, wolves, robbers, wizards, strangers, ogres, goblins, kings,
queens, fairies, monsters, bandits, mermaids, knights, vampires, mummies, sorcerers, smugglers, werewolves,
highwaymen, cyclopes, gremlins""",
    "fruit_one": """
apple, pear, plum, peach, orange, banana, cookie, bun, nut, fig, apricot, carrot, biscuit, cherry cake, walnut,
dried fig, mango, date, tangerine, chestnut, pomegranate, quince, pancake, guava, persimmon, kumquat""",
    "trinket_one": """
button, shell, feather, marble, pebble, coin, ribbon, pencil, key, bead, whistle, bell, stamp, nail, cork, acorn,
candle, thimble, pin, string of beads, bottle, horseshoe, spoon, magnet, buckle, ring, comb, chess piece, postcard,
badge, dice, crystal, cup, tassel, fossil, hook, spool, prism, charm, mirror, spring, medal, quill, hinge, cog,
cowbell, brooch, agate, bobbin, rosette, eggcup, cufflink, domino, arrowhead, geode, doorknob, nutcracker, ladle,
napkin ring, opal, corkscrew""",
    "thief": """
mouse, squirrel, hedgehog, raccoon, rat, field mouse, chipmunk, dormouse, badger, marten, crow, magpie, stray cat,
weasel, jackdaw, opossum, ferret, shrew, polecat, vole""",
    "species": """
rabbit, mouse, fox, squirrel, hedgehog, bear, badger, mole, otter, cat, beaver, hare, raccoon, dormouse, pig, frog,
dog, chipmunk, goat, weasel, wombat, marmot, vole, shrew, stoat, porcupine, lemur, koala, meerkat""",
    "twice": """
twice, three times, over and over, again and again, four times, many times, five times, once more, half a dozen
times""",
    "thanks": """
Thank you, Thank you so much, Thank you very much, Thanks, Many thanks, How kind of you, Bless you, A thousand
thanks, Thanks a million""",
    "oh": "Oh, Oh no, Oh dear, Goodness, My goodness, Oh my, Gosh, Dear me, Good gracious, Heavens, Golly, Crikey",
    "yay": """
Hooray, Yes, Wow, Yippee, Look at that, Hurray, Oh, Well done, I knew it, Wonderful, Bravo, Whoopee, Huzzah, Jackpot""",
}
