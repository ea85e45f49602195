"""The furniture of `storyworld`: places and the topics stories turn on, as tables with one row per thing.

A row keeps together what must stay true of one thing through a whole story: a kite is flown, its string snaps, and it
is mended with string. Columns are separated by `|`, alternatives in a column by `;`; an indented line goes on with its
row. A column may use the slots of a story (`{his}`, `{bird}`, ...) or be a word list (`<list>`). The first column names
the row and is always told in the text. After the columns of its table, a row may have some of its own, `name=...`:
nobody skates in June.
"""

# Out of doors, and tame enough for a child; creatures keep to the wild places below.
TOWN_PLACES = """
place | at | spot | sight
park | in the park | under a bench; behind the fountain; in the tall grass; beside the duck pond; under the slide;
  behind the bandstand; next to the statue | {number} ducks on the pond; {a_trade} with {a_garment}; {a_pet} chasing
  its tail; an old man feeding the pigeons; {a_trade} playing the {instrument}
playground | at the playground | under the slide; in the sandbox; behind the swings; beneath the climbing frame;
  next to the seesaw; under the merry-go-round | two boys on the seesaw; a girl with {a_look_c} {garment}; twins
  playing {game}; {a_bird} in the sandbox
beach | on the beach | under a beach towel; behind a rock; in a tide pool; beside the pier; under a heap of seaweed;
  next to a sandcastle; under a rowboat | a boat called the {boat} out at sea; {a_fish} in a tide pool; a gull with
  a crust in its beak; children digging {a_big} hole; {a_bird} on a post; {trinkets} in the sand
garden | in the garden | under the rosebush; behind the shed; in the vegetable patch; beside the rain barrel; under
  the wheelbarrow; among the {flowers} | {insects} among the {flowers}; {a_bird} on the fence; ripe {fruit} on a
  branch; a worm in the wet earth; a row of {greens}
schoolyard | in the schoolyard | under the bicycle rack; behind the gym; beside the flagpole; under the old {tree};
  next to the steps; by the gate | some children playing {game}; {a_trade} fixing the gate; {a_bird} on the
  flagpole; two girls trading {trinkets}
village green | on the village green | under a market stall; beside the well; behind the stone cross; in the long
  grass; at the foot of the {tree}; near the bus stop | {a_trade} on {a_vehicle}; an old woman selling {fruit}; a
  stall full of {trinkets}; {a_farm_animal} on a rope; a band with {a_instrument} and {a_instrument2}
harbor | at the harbor | behind a barrel; under a fishing net; inside a coil of rope; beside a stack of crates;
  under an upturned boat | a boat called the {boat}; {a_trade} mending nets; a box full of silver fish; {a_bird} on
  a mast; a crate of {fruit} from {land}
fairground | at the fairground | under the carousel; behind the ticket booth; beside the candy stall; under a wagon;
  near the puppet tent | {a_trade} on stilts; a man selling {sweets}; {a_far_animal} painted on a sign; a tent full
  of {trinkets}; {a_trade} with {a_instrument}
zoo | at the zoo | beside the penguin pool; under a bench near the lions; behind the ice cream stand; next to the
  monkey house; by the turtle pond | {a_far_animal} asleep in the sun; {a_far_animal} and its baby; {a_trade} with a
  bucket of {fruit}; a parrot that said hello
"""

WILD_PLACES = """
place | at | spot | sight
forest | in the forest | under a fallen log; behind {a_tree}; in a heap of leaves; between two roots; inside a
  hollow tree; under a fern; next to a stump | {a_bird} on a high branch; {a_beast} with bright eyes; a ring of
  mushrooms; {insects} in a beam of light; a path that curled away between the trees
meadow | in the meadow | in the tall grass; behind a bush; among the {flowers}; under a hedge; beside a mossy stone;
  near the old gate | {insects} over the {flowers}; {a_farm_animal} behind the fence; {a_bird} high above; {a_beast}
  sitting very still; clouds shaped like {a_far_animal}
riverbank | by the river | under the bridge; between two stones; in the reeds; behind a willow; on a patch of sand;
  under a pile of driftwood | {a_fish} in the clear water; a boat called the {boat}; {insects} over the water;
  {a_bird} on one leg; a leaf spinning like a little ship
hill | on the hill | behind a big rock; in the heather; under the lonely {tree}; beside the stone wall; in a rabbit
  hole | the roofs of {village} far below; {a_bird} floating on the wind; {number} sheep as small as buttons;
  {a_vehicle} crawling along the road
orchard | in the orchard | under the {tree}; behind a basket of {fruit}; beside the ladder; in the long grass; next
  to the wheelbarrow; inside an empty barrel | ripe {fruit} everywhere; {insects} around the fallen fruit; {a_bird}
  stealing a cherry; {a_beast} under the {tree2}
pond | by the pond | under the little jetty; among the reeds; behind a mossy log; beside a lily pad; under {a_tree};
  between two flat stones | {a_fish} just below the water; a frog on a leaf; {insects} zigzagging about; a mother
  duck and {number} ducklings; {a_bird} washing its wings
field | in the field | behind a haystack; under the scarecrow; in the ditch; beside the fence; among the {greens};
  near the scarecrow's foot | {a_bird} on the scarecrow's hat; {a_farm_animal} and {a_farm_animal2}; rows and rows
  of {greens}; {a_beast} running along a furrow
old quarry | near the old quarry | behind a heap of stones; under a rusty cart; in a little cave; beside a puddle;
  under a bramble | a lizard warming itself; {a_bird} on a ledge; a stone full of tiny shells; {trinkets} left by
  somebody long ago
"""

THINGS = """
thing | look | play | played | broke | mended
ball | <look_c> | bounce it; kick it; throw it | bounced it up and down; kicked it as far as {he} could; threw it
  high and caught it | the air hissed out of it | put a patch on it and pumped it up
kite | <look_c> | fly it | flew it high above the trees; let it dance in the wind; ran with it until it rose | the
  string tore | tied on a new string
doll | <look_s> | play with it; dress it up | gave it a tea party; dressed it in {a_garment}; rocked it to sleep |
  one arm came off | sewed the arm back on
teddy bear | <look_s> | hug it; play with it | gave it a ride on {his} back; told it {his} secrets; took it on a
  picnic | one ear tore off | stitched the ear back on
toy boat | <look_w> | sail it; play with it | sailed it along a puddle; loaded it with {trinkets}; gave it a leaf
  for a flag | the mast broke | glued the mast and tied it with thread
drum | <look_c> | play it; beat it | beat it until {his} arms were tired; marched in circles and drummed; played it
  like a soldier | the skin split | stretched a new skin over it
whistle | <look_m> | blow it | blew it as loud as {he} could; played little tunes on it; called all the birds with
  it | it cracked down the side | mended the crack with a drop of glue
toy train | <look_w> | play with it; push it along | pushed it up and down; loaded it with {fruit}; made a track of
  pebbles for it | one wheel came off | fixed the wheel with a new pin
puppet | <look_w> | play with it; make it dance | made it dance; made it bow and wave; put on a little show | its
  strings got torn | knotted the strings together again
yo-yo | <look_c> | play with it; spin it | made it spin and sleep; swung it up and down; tried a new trick | the
  cord broke | found it a new cord
spinning top | <look_w> | spin it | spun it on a flat stone; watched it hum and wobble; spun it again and again |
  the tip broke off | carved a new tip for it
picture book | <look_c> | read it; look at it | read about {book}; looked at every page; read the best parts aloud |
  a page ripped in two | taped the page together
jump rope | <look_c> | skip with it | skipped and counted to {number}; skipped until {he} was out of breath; tried
  to skip backward | one handle came off | tied the handle on with wire
hoop | <look_c> | roll it | rolled it along the path; jumped through it; raced beside it | it bent like a banana |
  bent it straight again
toy car | <look_c> | race it; play with it | raced it down a slope; drove it over roots and stones; built a garage
  for it | an axle came loose | put in a new axle made from a nail
toy robot | <look_m> | wind it up; play with it | wound it up and let it march; gave it orders; taught it to guard
  {his} lunch | its key broke off | soldered the key back on
music box | <look_w> | listen to it; open it | listened to its tinkling song; wound it up and hummed along; opened
  and closed its lid | the lid came off | screwed the lid back on
magnifying glass | <look_m> | look through it | looked at {insects} through it; studied a leaf; made {a_small}
  flower look enormous | the handle broke | glued the handle together
lantern | <look_m> | light it; swing it | swung it to and fro; pretended to be {a_trade}; hung it on a branch | the
  glass cracked | put in a new pane of glass
umbrella | <look_c> | open it; twirl it | twirled it like a dancer; used it as a sail; pretended it was a tent | two
  ribs broke | wired the ribs together
cap | <look_s> | wear it; put it on | wore it like a captain; tossed it into the air; pulled it down over one eye |
  a seam ripped open | sewed up the seam
scarf | <look_s> | wear it | wore it like a cape; let it stream in the wind; pretended it was a long snake | a
  thread caught and it began to unravel | knitted the loose end in
bracelet | <look_m> | wear it; put it on | turned it round and round; let it sparkle in the light; counted its beads
  | the beads flew in all directions | threaded the beads on a new string
compass | <look_m> | look at it; follow it | walked north, then east; pretended to be an explorer in {land};
  followed the little needle | the needle got stuck | oiled the needle until it swung again
paper plane | <look_c> | throw it; fly it | threw it from the top of a wall; watched it swoop; made it loop and land
  | a wing tore | folded a fresh wing
harmonica | <look_m> | play it | played a sad song and then a silly one; blew one long note; played until {a_bird}
  answered | one reed broke | bent a new reed into place
flute | <look_w> | play it | played a tune about {book}; practiced {his} three best notes; played softly to the
  {flowers} | a crack ran along it | bound the crack with waxed thread
bell | <look_m> | ring it | rang it at every corner; pretended to be {a_trade}; rang it for the {farm_animal} | the
  clapper fell out | hung the clapper up again
basket | <look_w> | carry it; fill it | filled it with {fruit}; carried it on {his} head; gathered {flowers} in it |
  the handle gave way | wove a new handle
blanket | <look_s> | spread it out; curl up in it | spread it out for a picnic; made a tent of it; wore it like a
  king's robe | a long tear ran across it | darned the tear
stuffed elephant | <look_s> | play with it; hug it | fed it pretend {fruit}; took it for a walk; taught it to bow |
  its trunk came loose | sewed the trunk on tight
toy horse | <look_w> | play with it | galloped it over the grass; gave it a stable of twigs; rode far away in {his}
  mind | a leg broke | pegged and glued the leg
snow globe | <look_c> | shake it; look at it | shook it and watched the snow fall; made up stories about the tiny
  house; held it up to the sun | water began to drip from it | sealed it with wax
telescope | <look_m> | look through it | looked at {a_bird} far away; searched for pirates; spied on the moon | the
  lens fell out | set the lens back in its ring
tambourine | <look_c> | play it; shake it | shook it and danced; played along with the {bird}; tapped it on {his}
  knee | three jingles fell off | wired the jingles back on
crown | <look_m> | wear it | was queen or king of everything; gave orders to the {insects}; made a law about
  {sweets} | it split at the back | joined it with a strip of {cloth}
wagon | <look_c> | pull it | pulled it full of {trinkets}; gave {a_pet} a ride in it; rolled it down a slope | the
  shaft broke | screwed on a new shaft
toy rabbit | <look_s> | play with it; cuddle it | hopped it from stone to stone; hid it and found it; fed it clover
  | its tail fell off | sewed on a new tail
mask | <look_c> | wear it | pretended to be {a_far_animal}; growled like {a_far_animal2}; scared {a_bird} away | the
  elastic tore | knotted in new elastic
fishing rod | <look_w> | fish with it; try it | caught one {small} {fish} and let it go; sat and watched the float;
  cast the line far out | the line got tangled and tore | wound on a new line
paintbox | <look_w> | paint with it; open it | painted {a_bird}; painted the sky and {a_tree}; mixed a color like
  {fruit} | two colors spilled into each other | wiped it clean and filled the empty pans
sled | <look_w> | pull it; ride on it | pulled it behind {him}; sat on it and dreamed of snow; gave it a new name |
  a runner split | nailed a slat along the runner
pinwheel | <look_c> | blow on it; make it turn | ran to make it whirl; held it into the wind; planted it in the
  ground and watched | a blade got crushed | smoothed the blade and pinned it back
locket | <look_m> | open it; wear it | opened and shut it; looked at the tiny picture inside; let it swing in the
  sun | the chain came apart | closed the chain with a new link
marionette | <look_w> | make it dance | made it walk and wave; made it jump over a stick; let it bow to {a_bird} | a
  knee joint broke | put a new peg in the knee
pedal cart | <look_w> | ride on it | rolled it back and forth; rode on it like a king; gave {trinkets} a ride | the
  steering cord tore | spliced the cord
accordion | <look_c> | play it | squeezed out a polka; played slow music for the {farm_animal}; made it wheeze and
  sing | the bellows got a hole | patched the bellows with {cloth}
abacus | <look_w> | count on it | counted {insects}; added up {his} {trinkets}; clicked the beads to and fro | a
  wire came out | bent the wire back into its frame
kaleidoscope | <look_c> | look through it | turned it and watched the colors tumble; pointed it at the sky; counted
  the stars inside it | the mirror inside came loose | wedged the mirror with cork
sundial | <look_m> | read it | read the hour from it; watched its shadow creep; set it down in the sunshine | the
  pointer bent | hammered the pointer straight
"""

FEARS = """
fear | moment | advice | deed
the dark | When the lamp went out, strange shapes crept along the wall; Every shadow looked like {a_far_animal} |
  Look at one shadow at a time and give it a name | looked at the shadows one by one and found only a chair, a
  curtain, and {a_garment}
thunder | The sky went {boom}, and the windows shook; A storm growled over the roofs | Count slowly between the
  flash and the bang | counted out loud, and each time the thunder was farther away
deep water | The water looked black and cold, and nobody could see the bottom; The others splashed in, but {hero}
  stood still on the edge | Put in one toe, then one foot, and hold on to me | went in up to the knees, then the
  belly, and then floated like a leaf | weather=hot; warm; sunny; bright; muggy | fair=hot; warm; sunny |
  month=June; July; August | season=summer
big dogs | A dog as big as {a_farm_animal} stood in the lane and barked; The neighbors had got a dog, and it was
  enormous | Stand still, hold out {a_hand}, and let him smell it | stood still and held out one {hand}, and the dog
  licked it
the cellar | Something down there went {clonk}; The stairs were steep, and it smelled of dust and {greens} | Take my
  lantern and sing a loud song on every step | sang all the way down, and found only a shelf of jam and {a_tool}
high places | The others were already at the top of the rock, waving; The ladder swayed, and the ground was far away
  | Do not look down, look at the next step | climbed step by step until the whole of {village} lay below
spiders | A fat spider hung right over the bed; A spider sat in the middle of the doorway | Watch her work for a
  while before you run | watched the spider spin, and saw that she was as careful as {a_trade}
singing for people | All the seats were full, and every face was turned to the stage; The music began, but no sound
  came out | Pick out one friendly face and sing only to that one | looked at one face in the front row and sang
  every verse
the old bridge | The planks creaked, and the river rushed below; Halfway across, the boards began to sway | Hold the
  rope, and tell me a joke while we walk | held the rope, told a joke about {a_far_animal}, and was over before the
  end of it
the empty house | A shutter went {crash} in the wind; Everybody said that a ghost lived there | Ghosts do not eat,
  so let us see who left those crumbs | opened the door and met nothing worse than a family of mice
bees | A bee came humming around {his} ears; The garden was full of bees | Move slowly, for they are only busy |
  stood quite still while a bee landed, rested, and flew away | weather=hot; warm; sunny; bright; muggy | fair=hot;
  warm; sunny | month=June; July; August | season=summer
the fog | The path was gone, and every tree looked like a stranger; Gray mist swallowed the road | Follow the fence
  with one hand and call out as you go | followed the fence, called out, and heard a friendly voice answer
loud noises | Somebody dropped a pan, and it went {crash}; The parade came around the corner with {a_boom} | Make a
  louder noise yourself and see who jumps | took a pot and a spoon and made the loudest noise in {village}
the attic | Boards creaked up there at night; A light seemed to move behind the attic window | Let us go up by day
  and see what lives there | climbed up and found an old {curio}, a heap of {trinkets}, and one sleepy bat
new things | Everybody wanted to taste the {soup}, but {hero} shook and hid; A new path had been opened, and all the
  others ran ahead | Try one little bit, and you may stop after that | tried one little bit, then another, and then
  could not stop
the dentist | The chair was high, and the lamp was bright; A drill hummed somewhere behind the door | Count the
  {trinkets} in the picture on the ceiling | counted every one of them, and it was over before the last
geese | Two geese came hissing across the yard; A gander stood in the lane with his neck stretched out | Make
  yourself tall and walk on as if you had business there | stood up tall, walked straight on, and the geese stepped
  aside
masks | At the carnival somebody came by dressed as {a_fabled}; A face like {a_far_animal} looked around the corner
  | Ask to see who is underneath | asked politely, and under the mask was only {a_trade} with a kind smile
the deep snow | The drifts were higher than the fence, and the road was gone; Snow had covered every path | Step
  into my footprints and carry a stick | stepped from footprint to footprint until the door was in sight |
  weather=cold; frosty; snowy; gray; crisp; chilly | fair=frosty; bright; crisp; clear | month=January; February;
  December | season=winter
being alone | The house was very still, and the clock ticked loudly; Everyone had gone out, and the rooms felt too
  big | Make yourself busy, and the quiet will be good company | built a tower of {trinkets}, hummed a song, and
  forgot to be lonely
"""

MAKINGS = """
making | made | parts | mishap | remedy | outcome
birdhouse | built | {number} boards, a handful of nails, and {a_tool} | the roof was crooked and let the rain in |
  covered the gap with a strip of {cloth} | {A_bird} moved in before the week was over
kite | made | two thin sticks, {look_c} paper, and a ball of string | it was too heavy and would not fly | took off
  the paint and gave it a tail of {cloth} | It rose higher than the {tree}
scarecrow | put together | two poles, an old {garment}, and a sack of straw | the birds were not afraid and sat on
  its arms | hung {trinkets} on its sleeves, so that they swung in the wind | Not one {bird} came near the {greens}
  again
snowman | built | {number} big snowballs, two lumps of coal, and a carrot | the head rolled off and broke in two |
  rolled a new head and pushed it down firmly | Everyone who came by took off their hats to it | weather=cold;
  frosty; snowy; gray; crisp; chilly | fair=frosty; bright; crisp; clear | month=January; February; December |
  season=winter
raft | built | {number} logs, some rope, and an old {garment} for a sail | water came up between the logs | tied
  them together twice as tightly | It floated as proudly as a ship called the {boat} | weather=hot; warm; sunny;
  bright; muggy | fair=hot; warm; sunny | month=June; July; August | season=summer
lantern | made | an empty jar, {look_c} paper, and a candle | the wind blew out the light | cut the holes smaller
  and closed the lid | At night it glowed like a little moon
costume | sewed | {number} scraps of {cloth}, a needle, and {a_look_c} {garment} | one sleeve was longer than the
  other | cut off the longer one and used the rest for a tail | At the party nobody guessed who was hiding inside
puppet theater | built | a big box, two curtains of {cloth}, and {a_tool} | the curtain fell down in the middle of
  the play | threaded it on a stronger cord | The whole street came to see the play about {book}
cart | built | {number} planks, four old wheels, and {a_tool} | it would only turn in circles | swapped the front
  wheels | It rattled down the hill and overtook {a_vehicle}
drum | made | an empty barrel, a round piece of {cloth}, and some cord | it only made a dull thud | pulled the skin
  tighter and tighter | Now it went {boom} so loudly that {a_bird} flew off
toy boat | carved | a block of wood, a scrap of {cloth}, and {a_tool} | it tipped over on its side | put a row of
  nails under it to keep it upright | It sailed right across the pond
treehouse | built | {number} boards, a rope ladder, and {a_tool} | one plank was too short and left a hole | turned
  the hole into a window | From up there they could see {near}
quilt | stitched | {number} scraps of {cloth}, some thread, and an old {garment} | the pieces did not fit together |
  sewed a star of {cloth2} over the gap | That winter it was the warmest thing in the house
cake | baked | flour, eggs, {fruit}, and a pinch of {sweet_spice} | it came out of the oven flat on one side |
  filled the low side with cream and {fruit} | Nobody left a single crumb
pot of soup | cooked | {greens}, {greens2}, and some {spice} | it tasted of nothing but water | added {spice2} and
  let it bubble a while longer | Everybody asked for a second bowl
pot of jam | made | a basket of {fruit}, a bag of sugar, and a little {sweet_spice} | it was as runny as water |
  boiled it again and stirred it slowly | On warm bread it tasted like summer
necklace | made | {trinkets}, {trinkets2}, and a long thread | the thread tore, and everything rolled under the
  table | threaded it all again on a stronger string | It looked fine enough for a queen
sandcastle | built | buckets of wet sand, {trinkets}, and a flag of {cloth} | a wave washed half of it away | dug a
  deep moat around what was left | It was still standing when the sun went down | weather=hot; warm; sunny; bright;
  muggy | fair=hot; warm; sunny | month=June; July; August | season=summer
windmill | made | four pieces of card, a stick, and {a_tool} | it would not turn at all | bent every blade a little
  to one side | Soon it whirred like {a_bird}'s wings
bridge | built | {number} flat stones, a long plank, and some rope | it wobbled with every step | pushed smaller
  stones underneath | Even {a_beast} used it to cross the stream
card | drew | {look_c} paper, a pot of glue, and some {trinkets} | a blot of ink fell in the middle of it | turned
  the blot into {a_far_animal} | It stood on the shelf for the rest of the year
hat | made | a sheet of {cloth}, a needle, and {a_bird} feather | it slipped down over both eyes | folded a strip of
  {cloth2} inside | People in {village} began to ask for one just like it
bird feeder | made | an empty bottle, some string, and {a_tool} | all the seeds ran out at once | made the hole
  smaller with a cork | By noon {a_bird} and {a_bird2} were eating side by side
sled | built | two bent boards, a rope, and {a_tool} | it stuck in the snow and would not slide | rubbed the runners
  with candle wax | It flew down the hill like {a_bird} | weather=cold; frosty; snowy; gray; crisp; chilly |
  fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
"""

SKILLS = """
skill | tries | tip | success
ride a bicycle | wobbled and tipped over into {a_tree}; forgot to pedal and fell over; rolled straight into a hedge
  | Look where you want to go, not at your feet | rode all the way to the corner and back
whistle | blew and blew, but only air came out; made a noise like a leaking tire; spat on {his} own chin | Make your
  lips small, as if to say the word you | whistled a tune so clear that {a_bird} answered
swim | swallowed a mouthful of water; sank like a stone; splashed so much that everyone got wet | Lie on your back
  first, and let the water carry you | swam from one bank to the other | weather=hot; warm; sunny; bright; muggy |
  fair=hot; warm; sunny | month=June; July; August | season=summer
skate | sat down hard on the ice; slid in the wrong direction; clung to the fence and would not let go | Bend your
  knees and push off to the side | glided twice around the pond | weather=cold; frosty; snowy; gray; crisp; chilly |
  fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
tie a bow | made a knot that looked like a spider; tangled both ends together; pulled, and it all fell apart | Make
  two rabbit ears and let one hop through the hole | tied two perfect bows, one on each shoe
juggle | dropped all the balls at once; hit the lamp with an orange; caught one and lost two | Begin with one ball,
  then two, and throw them both to the same height | kept {number} plums in the air
jump rope | tripped over the rope; got it wound around both legs; jumped when the rope was already gone | Listen for
  the slap of the rope, and jump when you hear it | jumped {number} times without a mistake
walk on stilts | toppled into the {flowers}; took one step and hopped off; leaned back and sat down in a puddle |
  Take small steps and never stand still | walked past the window on stilts and looked in from above
skip stones | heard only a plop; threw the stone straight up into the air; hit {a_tree} by mistake | Choose a flat
  stone and throw it low | made a stone jump {number} times over the water
knit | dropped all the stitches; knitted a hole instead of a scarf; got tangled up in the wool | One stitch at a
  time, and never pull too hard | held up a scarf as long as {a_fish}
climb a rope | slid down and burned {his} palms; hung there like a sack of {greens}; got only one foot above the
  ground | Hold the rope between your feet and stand on it | touched the knot at the very top
do a cartwheel | landed on {his} bottom; rolled into a bush; fell over sideways like a sack | Keep your arms
  straight and look at your hands | turned {number} cartwheels in a row
catch a ball | shut both eyes and missed; let it bounce off {his} nose; clapped too late | Watch the ball all the
  way into your hands | caught it with one hand, and then caught it again
row a boat | went around in a circle; lost an oar; splashed everybody on the shore | Pull with both arms at the same
  time | rowed to the little island and home again | weather=hot; warm; sunny; bright; muggy | fair=hot; warm; sunny
  | month=June; July; August | season=summer
play the drum | broke a stick; woke the whole street; got faster and faster and could not stop | Count to four in
  your head, and let your hands follow | played a march from beginning to end
play the violin | made it screech like a cat; dropped the bow; scared {a_bird} off the roof | Do not press so hard,
  but stroke it | played a whole song without one wrong note
tell the time | mixed up the two hands of the clock; said it was noon when it was night; stared at the dial until it
  blurred | The short hand is slow and tells the hour | knew that it was {number} o'clock before anyone else did
do a headstand | tipped over and kicked a lamp; rolled onto {his} back; knocked over {a_curio} | Make a triangle
  with your hands and your head | stayed upside down while everybody counted to {number}
milk the goat | got kicked into the straw; tipped over the bucket; could not get one drop | Warm your hands first
  and talk to her | filled half a bucket with warm milk
ski | sat on the tips of both skis; slid backward down the slope; ran into a snowdrift | Lean forward and make the
  shape of a pie slice | came down the whole hill without a fall | weather=cold; frosty; snowy; gray; crisp; chilly
  | fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
read | mixed up the letters; guessed, and guessed wrong; gave up after the first line | Say each sound aloud, and
  then say them together | read a whole story about {book}
dance | stepped on everybody's toes; turned left when all the others turned right; tripped over {his} own feet |
  Listen to the music, and forget your feet | danced until the last note
bake bread | forgot the yeast; made a loaf as hard as a brick; got dough in {his} hair | Let the dough sleep, and do
  not peek | pulled a round golden loaf out of the oven
build a fire | made nothing but smoke; used wet wood; blew so hard that it went out | Start with the smallest twigs
  and leave room for the air | sat by a small bright fire and roasted {fruit}
"""

CHORES = """
chore | trouble | labor | gift
fence | the wind had blown the fence down | held the boards, handed over the nails, and painted the last post
  {look_c}; carried boards, fetched {a_tool}, and hammered until it stood straight | a bag of {fruit}
leaves | leaves lay all over the yard, and the rake was broken | swept the leaves into {number} heaps and jumped in
  only one of them; gathered the leaves into baskets and carried them to the compost | a jar of {spice}
firewood | the firewood was still lying in the rain | carried the firewood in, log by log, and stacked it against
  the wall; loaded a cart and pulled it to the door {number} times | {sweets} still hot from the pan
spectacles | the spectacles had vanished, and without them the letters were only a blur | searched the kitchen, the
  hall, and the henhouse, and found the spectacles in {a_garment}; looked under every cushion and at last found them
  in the sugar bowl | a book about {book}
cat | the cat had climbed {a_tree} and did not dare to come down | leaned a ladder against the trunk and coaxed the
  cat into a basket; called softly, held up a bit of ham, and caught the cat in {his} arms | a kiss and a plate of
  {sweets}
roof | the roof was leaking, and drops fell into {number} pots | held the ladder, passed up the tiles, and emptied
  the pots; carried up moss and clay and filled every crack | {a_curio} from the attic
hens | a fox had frightened the hens, and they had run off in every direction | crept through the hedges and brought
  the hens home one by one; laid a trail of corn right into the coop | {number} brown eggs
snow | the snow lay so high that the door would not open | dug a path from the door to the gate; shoveled until
  {his} cheeks were red and the steps were clear | a mug of {drink} | weather=cold; frosty; snowy; gray; crisp;
  chilly | fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
letter | a letter had come from {land}, but the words were too small to read | read the letter aloud, slowly, two
  times over; read every line and wrote a fine long answer | the {look_c} stamp from the envelope
garden | the garden was full of weeds, and {elder}'s back was sore | pulled weeds all morning and watered the
  {greens}; dug, raked, and planted a row of {flowers} | a basket of {greens}
clock | the big clock had stopped, and nobody knew the time | cleaned the little wheels with a feather and set the
  hands; crawled behind the clock and pulled out {a_curio} that had jammed the wheels | {a_look_m} coin
bag | the bag was heavy, and the hill was steep | took one handle of the bag and pulled; carried the {greens} in
  {his} own arms and sang to keep in step | {sweets} and a big smile
well | the bucket had fallen into the well | fished for the bucket with a hook and a long rope; let down {a_tool} on
  a string until it caught the handle | a glass of cold {drink}
kitten | the kitten had crept behind the stove and was crying | lay down flat, reached in with both arms, and lifted
  it out; rolled a ball of wool past the gap until it came out to play | the promise that {he} could choose its name
boat | the boat had come loose and was drifting away | waded in, caught the rope, and tied it to a post; threw a
  line with a stone and pulled it slowly ashore | a ride to the island
shop | the shop was full, and nobody was there to help | weighed {fruit}, wrapped {sweets}, and counted the change;
  carried boxes, filled the shelves, and swept the floor | a paper bag of {sweets}
windows | the windows were so dusty that no light came in | washed the windows until they squeaked; scrubbed every
  pane inside and out | a slice of {cake} with cream
wagon | a wheel of the wagon was stuck in the mud | pushed from behind while the {farm_animal} pulled; laid branches
  under the wheel and pushed with all {his} might | a seat on top of the hay
apples | the apples were ripe, and the tree was too high | climbed from branch to branch and filled {number}
  baskets; shook the branches and gathered what fell | a pie made of the best ones
party | the party guests would come at noon, and nothing was ready | set the table, hung up paper chains, and
  polished {number} spoons; stirred the {soup}, folded napkins, and picked {flowers} | the biggest piece of {cake}
"""

RULES = """
rule | order | lure | deed | harm | amends
gate | Never leave the gate open | {He} only wanted to look at {a_farm_animal} in the lane | slipped out and forgot
  to close the gate behind {him} | The {farm_animal2} trotted out and ate all the {flowers} next door | led the
  {farm_animal2} home and planted new {flowers}
paint | Do not touch the door, the paint is still wet | The paint looked so smooth and {look_c} | put one {hand}
  flat on the wet paint | Now there was a print on the door and {look_c} spots on the floor | scrubbed the floor and
  painted the door again
cake | The cake is for tomorrow, so please leave it alone | It smelled of {sweet_spice} and {fruit} | ate one crumb,
  then one slice, and then one more | There was a big hole in the cake, and {his} stomach hurt | helped to bake
  another cake
mud | Stay out of the mud in your good clothes | The puddle was wide and brown and perfect | jumped into the mud
  with both feet | {His} new {garment} was brown from top to bottom | washed the {garment} by hand and hung it up to
  dry
window | Never play ball near the window | There was no wind there, and the wall was so handy | threw the ball
  against the wall just once more | The ball went straight through the window with {a_crash} | swept up the glass
  and paid for the pane with {his} own coins
bridge | Do not go past the bridge alone | On the other side there were {fruit} as big as eggs | crossed the bridge
  and walked on and on | Soon every path looked the same, and it was dark before {he} found the way home | promised,
  and from that day waited for company at the bridge
box | Please do not open the box before the party | It was tied with {look_c} ribbon, and something inside went
  {hush} | pulled the ribbon and lifted the lid | {A_bird} shot out of the box and flew around the lamp | opened the
  window, made a trail of seeds, and coaxed the {bird} back
baby | Play quietly, the baby is asleep | The {instrument} was lying there, all alone | tried one little note, and
  then a loud one | The baby woke up and screamed for {while} | sang softly until the baby slept again
ladder | Stay off the ladder, it is not steady | High up hung the last of the {fruit} | climbed up to the very top |
  The ladder slid away, and there {he} hung on a branch | helped to mend the ladder and held it for the next picker
jam | The jam is for winter, so keep your fingers out of it | It was made of {fruit}, and the lid was loose | dipped
  in one finger, and then a spoon | The jar tipped over, and jam dripped down the shelf and onto {a_curio} | wiped
  the shelf clean and picked a fresh basket of {fruit}
scissors | The scissors are not for hair | {His} bangs were hanging in {his} eyes | cut off a little on the left,
  and then a little on the right | Now there was a bald patch over one ear | wore a cap for three weeks and
  swept up every lock
tap | Turn off the tap when you are done | {He} was making a lake for {his} {trinkets} | left the tap running and
  went off to play {game} | The water ran down the stairs, step by step | mopped every step and dried the rug in the
  sun
fire | Never leave the fire without someone to watch it | Outside, {a_trade} was playing the {instrument} | ran out
  to listen and forgot the fire | A spark burned a hole in the {look_s} rug | patched the hole and filled the bucket
  beside the hearth
nest | Look at the nest, but do not touch it | The eggs were blue with little brown dots | reached in and picked up
  one egg, only for a moment | The mother {bird} cried and would not come back | put the egg back, went far away,
  and waited until the {bird} was home
candy | Do not eat the candy before supper | It lay in a bowl, wrapped in {look_c} paper | ate {number} pieces
  behind the sofa | At supper there was {soup}, and {he} could not swallow one spoonful | gave the rest of the candy
  to the children next door
lamp | Do not run in the living room, for the lamp is old | {He} was {a_fabled}, and there was a treasure to save |
  ran around the sofa {number} times | The lamp fell over with {a_crash} | glued the shade piece by piece and saved
  up for a new bulb
goat | Do not feed the goat anything but hay | The goat looked so hungry, and it begged so nicely | gave the goat
  {sweets}, then {sweets2}, and then {a_garment} | The goat lay down and groaned all night | sat in the straw and
  held its head until morning
kettle | The kettle is hot, so do not touch it | The steam made such a funny song | lifted the lid, only to look
  inside | {He} burned one finger, and the kettle fell to the floor with {a_crash} | wiped the floor and learned how
  to pour with a cloth
"""

CONTESTS = """
contest | practice | trouble | aid | goal
running race | ran around the block every morning; raced against {a_farm_animal} | tripped over a root and fell |
  pulled {fhim} up and ran on side by side | the finish line
sack race | hopped up and down the stairs in a potato sack; practiced until the sack had a hole | got tangled up and
  rolled into a ditch | turned back and untied the knots | the end of the track
sled race | waxed the runners with an old candle; went down the hill every single day | hit a bump and flew into a
  snowdrift | stopped and dug {fhim} out of the snow | the foot of the hill | weather=cold; frosty; snowy; gray;
  crisp; chilly | fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
boat race | built a little boat with a sail of {cloth}; rowed until {his} arms were like rope | lost an oar in the
  reeds | threw {fhim} a rope and towed the boat along | the old jetty
cart race | built a cart and named it after {a_bird}; oiled all four wheels | lost a wheel in a bend | gave {fhim} a
  seat on the back of the cart | the post at the bottom
swimming race | swam across the pond every day; held {his} breath in the bathtub | got a cramp and called for help |
  swam back and held {fhim} above the water | the far bank | weather=hot; warm; sunny; bright; muggy | fair=hot;
  warm; sunny | month=June; July; August | season=summer
egg race | walked around the house with an egg on a spoon; dropped {number} eggs on the stairs | dropped the egg and
  burst into tears | gave {fhim} a spare egg and waited | the white ribbon
sandcastle contest | drew plans with towers and moats; dug until the sun went down | saw the best tower fall down
  flat | left the half-built castle and helped to build the tower again | the jury's table | weather=hot; warm;
  sunny; bright; muggy | fair=hot; warm; sunny | month=June; July; August | season=summer
singing contest | sang in the bath and in the henhouse; learned a song about {book} | forgot every word in the
  middle of the song | stood up and sang along until the words came back | the front of the stage
baking contest | baked {a_cake} every day; stirred and tasted for a week | found that somebody had knocked the flour
  on the floor | shared the flour and the last of the {sweet_spice} | the judges' table
snowman contest | drew {number} snowmen on paper; practiced rolling balls of every size | saw the snowman's head
  roll down the hill | helped to roll another head | the big fir tree | weather=cold; frosty; snowy; gray; crisp;
  chilly | fair=frosty; bright; crisp; clear | month=January; February; December | season=winter
kite contest | built a kite out of {cloth} and sticks; watched how {a_bird} used the wind | saw the kite fly into a
  tree and tear | climbed up, freed the kite, and tied the string again | the highest cloud
stilt race | walked everywhere on stilts; wore out {number} pairs of shoes | stepped into a rabbit hole and broke a
  stilt | held out one stilt and hopped along on the other | the market cross
pumpkin contest | watered a pumpkin with milk and talked to it every night; built a little roof over a pumpkin |
  cried because the snails had eaten the biggest one | gave {fhim} the second-best pumpkin to show | the scales
spelling contest | learned ten words a day, even a word like {curio}; wrote words on every window | stared at the
  floor and could not say a letter | smiled and waited, and asked for a glass of water for {fhim} | the last word
wheelbarrow race | pushed a wheelbarrow full of {greens} up and down; found the best grip in the world | tipped over
  and spilled everything | stopped to fill the barrow again | the hay wagon
"""

PLANTS = """
plant | sprout | danger | rescue | yield
sunflower | two fat green leaves | a slug began to eat the stem | carried the slug off to the other end of the
  garden | a flower as big as a plate, and full of seeds for the {bird}
pumpkin | a curly green tip | the sun was so hot that the leaves went limp | brought water morning and evening | a
  pumpkin so {big} that it took two to lift it
bean | a little white neck | the stem grew long and flopped over | put in a tall stick and tied it up with string |
  so many pods that the whole family had bean soup
tomato plant | a fuzzy stalk | a cold night was coming | covered it with an old {garment} | {number} round tomatoes,
  as red as a fire engine
strawberry plant | three tiny leaves | {a_bird} came to steal the first berry | hung up {trinkets} that flashed in
  the sun | a bowl of berries, with enough left for a cake
carrot patch | a row of feathery tips | {a_beast} had been digging there | built a little fence of sticks | carrots
  as long as {his} arm
melon | a round, rough leaf | the earth grew as dry as dust | fetched {number} cans of water from the pond | a melon
  with stripes, sweet and cold inside
apple tree | a thin brown twig with one bud | the wind almost bent it to the ground | tied it to a post with a strip
  of {cloth} | seven small apples, and a seat in its shade
corn plant | a sharp green blade | crows walked up and down the row | made a scarecrow with {a_garment} | yellow
  cobs with silky hair
rosebush | a red, shiny shoot | tiny bugs sat all over it | brought {number} ladybugs in a matchbox | {look_c} roses
  that smelled of {spice}
turnip | a crinkled leaf | weeds crowded all around it | pulled the weeds and loosened the earth | a turnip so stuck
  that the whole family had to pull
cherry tree | a stick with two buds | a deer wanted to nibble the bark | wound some wire around the stem | a cloud
  of blossoms, and a handful of cherries
potato plant | a dark green tuft | beetles came marching along the leaves | picked off every beetle and put them in
  a jar | {number} potatoes, one of them shaped like {a_far_animal}
lemon tree | a glossy little leaf | frost was drawing ferns on the window | carried the pot to the warm stove | one
  yellow lemon, just enough for lemonade
pea vine | a loop of green thread | the rain had washed the earth away | pressed fresh earth around the roots | fat
  pods that popped when you pressed them
lavender bush | a soft gray shoot | the pot fell off the sill | put the roots into a bigger pot | {insects} from far
  and wide, and a drawer that smelled of summer
"""

PATIENTS = """
patient | hurt | care | food | strength | farewell
robin | it could not lift one wing | bound the wing with a strip of {cloth} | crumbs and seeds | hopped around the
  kitchen and sang | flew up to the {tree} and looked back once
hedgehog | it was thin and shivered with cold | made a bed of leaves in a box by the stove | chopped egg and a
  saucer of water | rolled into a ball and snored loudly | trotted off under the hedge with its nose in the air
rabbit | one foot was caught in some wire | opened the wire and washed the foot | carrots and clover | thumped on
  the floor of its box | hopped to the edge of the field and was gone in three jumps
duckling | it had lost its mother and peeped and peeped | carried it home in {a_garment} | oats and chopped lettuce
  | swam up and down in the washtub | paddled after a row of other ducklings
squirrel | it had fallen out of its nest | wrapped it in {a_garment} and kept it warm | warm milk and then nuts |
  ran up the curtain and down again | raced up {a_tree} and scolded from the top
owl | it had flown against a window and sat there dazed | put it in a dark, quiet box | bits of meat | turned its
  head all the way around | spread its wide wings and flew without a sound
turtle | it lay upside down and could not turn over | turned it over and cleaned its shell | lettuce and slices of
  cucumber | walked from one end of the room to the other | crawled away without once looking back
fox cub | a thorn was stuck in its paw | pulled out the thorn and cleaned the paw | scraps and an egg | chased its
  own tail around the chair | ran to the trees, where a big red fox was waiting
pigeon | its leg was hurt, and it only hobbled | tied a splint of matchsticks to the leg | corn and peas | strutted
  along the windowsill and cooed | circled over the roof and flew toward {village}
frog | its skin was hot and much too dry | set it in a bowl with wet moss | flies and little worms | jumped out of
  the bowl and onto the teapot | hopped away through the wet grass and croaked goodbye
lamb | it had been left behind in the rain | rubbed it dry with straw | milk from a bottle | skipped around the yard
  and butted the bucket | ran back to the flock and found its mother
bat | it had a tear in its wing | hung it up in a basket with a cloth over it | mealworms and a drop of water |
  stretched both wings and squeaked | swooped out into the evening sky
kitten | it was wet and had no collar | dried it with a towel and brushed its fur | milk and a bit of fish | climbed
  up {his} sleeve and purred | ran straight to {elder}, who had always wanted a cat
crow | it had a piece of string wound around its feet | cut the string with small scissors | bread soaked in milk |
  hid {trinkets} all over the house | flew off, but came back with a shiny button in its beak
dormouse | it had woken up in the middle of winter | laid it in a nest of wool | half a walnut | sat up and washed
  its whiskers | climbed into the hazel bush in spring
"""

HOSTS = """
host | lodging | job | treat | view
farm | on a farm near {village2} | feed the {farm_animal} and collect the eggs; brush the {farm_animal} and fill the
  trough; carry hay to the {farm_animal} | {sweets} and fresh milk | fields all the way to the hills
lighthouse | in a lighthouse on a rock | polish the great lamp; count the {number} hundred steps; write the name of
  every ship in a book | {soup} with bread | the whole wide sea, and a boat called the {boat}
windmill | in a windmill outside {village2} | carry the sacks and sweep up the flour; grease the wheels; watch the
  great stones turn | {a_cake} made from new flour | the road, the river, and {village2}, all tiny
houseboat | on a houseboat on the river | scrub the deck; steer around the bend; tie up to {a_tree} | fried fish and
  {drink} | {bird} nests in the reeds
bakery | above a little bakery in {village2} | knead the dough and dust the trays; paint faces on {sweets}; carry
  warm rolls to the shop | all the broken {sweets} {he} could eat | the square, where {a_trade} was walking by
castle | in a real castle with one broken tower | lock the {number} doors; feed the ravens; dust {a_curio} and
  {a_curio2} | {a_cake} on a silver plate | the moat, and {a_fish} in it
inn | in an inn at the crossroads | set the tables; carry a lantern for {a_trade}; write the bill of fare | {soup}
  from the big black pot | the road, with {a_vehicle} on it
cottage | in a cottage in the forest | gather mushrooms; pick {fruit}; chop twigs for the stove | {fruit} with cream
  | {a_tree} full of {bird} nests
toy shop | behind a toy shop in {village2} | wind up the {trinkets}; dust {a_curio}; wrap parcels in {look_c} paper
  | {sweets} out of a tin | the street, and {a_pet} in every window
vineyard | at a vineyard on a hill | pick the grapes; roll an empty barrel; chase off {a_bird} | dark grapes and
  {drink} | the river, bright as a ribbon
museum | next to a museum full of old things | dust {a_curio}; count the {trinkets}; find out who had made
  {a_curio2} | {sweets} in the quiet back room | {a_far_animal} made of bones
circus | in a circus wagon with {look_c} wheels | water the {far_animal}; sell tickets with {a_trade}; sew stars on
  {a_garment} | {sweets} and {drink} by the fire | the big tent with all its flags
beekeeper's house | in a house with {number} beehives | turn the honey wheel; fill jars; paint {flowers} on the
  hives | bread with honey | {flowers}, and {insects} everywhere
mountain hut | in a hut high in the mountains | fetch snow for the kettle; stack wood; ring the bell for the goats |
  cheese and {soup} | peaks as white as milk, and {a_bird} below them
"""
