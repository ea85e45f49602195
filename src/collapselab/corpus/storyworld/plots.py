"""The stories of `storyworld`: plots and shared scenes, in a small notation of their own.

A plot is a list of beats separated by blank lines, and a beat a list of alternatives, each beginning with `- `:

    [a|b|]     one of these, or nothing            {slot}    a word that stays the same through the story
    ?40        told in 40 % of the stories         <list>    a word drawn afresh each time
    /          here a paragraph may end            @scene    a shared scene

`{slot2}` differs from `{slot}`; `{a_slot}` has its article; `{Slot}` begins with a capital. Who is who: `hero` (he,
him, his), `friend` (fhe, ...), `kin` (khe, ...) from the family and `elder` (ehe, ...) from the neighborhood.
A plot names its kind of hero (a child, a rambler in wild places, or any: also a talking creature) and its topics.
"""

SCENES = {
    "intro": """
- [Once upon a time,|Once,|Long ago,|Not so long ago,|One {season},] there was {a_nature} [little |]{kind}
  [named|called] {hero}.[ {He} lived {home}.| {He} loved {hobby}.| {He} lived {home} {household}.]
- {hero} was {a_nature} {kind} who [loved|liked] {hobby}[ and {hobby2}|].
- {hero} was {a_nature} [little |]{kind} who lived {home}.
- {hero} lived {home} {household}.[ {He} was {a_nature} {kind}.| {He} was {nature}, and {he} loved {hobby}.|]
- There was [once |]{a_kind} [whose name was|called] {hero}, and {he} loved {hobby} [more than anything|best of
  all|almost as much as {sweets}|on {weather} days].
- In a [place|village|corner of the world] called {village} lived {a_kind} named {hero}[, as {nature} as could be|,
  who was {nature} and {nature2}|].
- {hero} {trait}.
- Everybody in {village} knew {hero}, the {nature} {kind} [from the {house} house|with the <look_c> <garment>|who
  loved {hobby}].
""",
    "birds": """
- <A_bird> [sang|called|chattered] in the {tree}[, and {insects} hummed|, and the air smelled of {flowers}|].
- The {flowers} were [in bloom|out|nodding in the wind][, and <a_bird> was singing|, and so were the {flowers2}|].
- [High above|Overhead], <a_bird> [circled without a sound|called|flew by on its way to {land}|sailed on the wind].
- The air smelled of {flowers} and [wet earth|warm grass|{spice}|rain].
- {Insects} [danced|buzzed|sat] over the {flowers}[ and did not mind the cold| as if they had all the time in the
  world|].
""",
    "way": """
- On the way {he} [met|passed|waved to] <a_trade> [with|who was carrying|pushing a cart with] <a_tool> and
  <a_curio>.
- <A_vehicle> [went by|rattled past|stopped at the corner], and <a_trade> [waved|called good morning|lifted
  <a_garment>].
- In a window [stood|was|{he} saw] <a_curio>, and beside it lay some <trinkets>.
- {He} hummed a song about {book} [on the way|as {he} went|and kept step with it].
- {He} stepped over {number} puddles and said hello to <a_farm_animal>.
- Along the road grew {flowers} and {flowers2}, and [<a_bird> hopped ahead|<a_beast> watched from the ditch].
""",
    "shelf": """
- [On the shelf|In the corner|By the window] stood <a_curio>, and [next to|under|behind] it [lay|was] a box of
  <trinkets>.
- {His} pockets were full of <trinkets>, and there was [a bit of string|{a_look_m} button|half a cookie] as well.
- In those days {hero} collected <trinkets>, and [the best ones lay in <a_look_c> box|{he} had {number} of
  them|{kin} had to step around them].
- The house smelled of {soup} and {cake}[, as it did every {day}|].
""",
    "glee": """
- {hero} was so {glad} that {he} [<laughed>|danced on the spot|hugged everybody|jumped into the air].
- {hero} <laughed>. {He} [felt|was] [{simile}|<glad> and a little <tired>|<glad>].
- [Nobody|No one] in {village} was as <glad> as {hero} [that day|that evening|just then].
- {His} heart [jumped|sang|felt as light as a feather], and {he} [smiled|hummed|skipped] all the way home.
- "This is the best day of my life," [said|whispered|thought] {hero}.
""",
    "night": """
- That night {hero} [slept|fell asleep] <deeply> and dreamed of {dream}.
- That evening they [ate|had|shared] {soup} and {sweets}, and [nobody was in a hurry|{hero} told the story
  <twice>|the lamp burned late].
- At bedtime {kin} [tucked {hero} in|blew out the lamp|read aloud about {book}], and {he} [smiled|was asleep at
  once|dreamed of {dream}].
- When the stars came out, {hero} was [<tired> but <glad>|already asleep|still smiling].
- {He} told {kin} all about it [over a cup of {drink}|that evening|at supper], and {kin} <laughed>.
""",
}

# name: (kind of hero, table of topics, beats)
PLOTS = {
    "lost": (
        "any",
        "things",
        """
@intro

- {His} [favorite|dearest] [thing|treasure] was {a_look} {thing} [that {kin} had given {him}|from {kin}|that had
  once belonged to {kin}].
- {He} had {a_look} {thing}, and {he} [took it everywhere|carried it wherever {he} went|would not go out without
  it].
- [For {his} birthday|Last {season}|At the fair], {kin} had given {him} {a_look} {thing}, and {he} loved it
  [dearly|at once|from the first day].
- Of all {his} things, {he} liked the {thing} best. It was {look} and [just the right size|a little scratched|almost
  new].

- One {fair} {daytime}, {hero} <went> {to} and {played}.
- On {day}, {hero} took the {thing} along {to}. {He} {played}, [and time flew by|and forgot everything else|and did
  not look at the clock].
- It was {a_weather} {daytime}, and {hero} wanted to {play}. So {he} took the {thing} {to}, where {he} {played}.

?35
@birds

?60
- [Then|After that|A little later] {he} [saw|noticed|stopped to look at] {sight}[, and after that {sight2}|].
- There was so much to see: {sight}, {sight2}, and {a_bird2}.
- {He} put the {thing} down for a moment to look at {sight}.

/

- When it was time to go home, {hero} [reached for|looked for|wanted] the {thing}. It was [gone|not there|nowhere to
  be seen].
- But when {he} turned around, the {thing} was gone.
- Halfway home, {he} stopped. {His} {hands} were empty. Where was the {thing}?
- All at once {hero} noticed that [something was missing|{he} no longer had it]. The {thing}!

- "<oh>! I have lost my {thing}!" <wailed> {hero}.
- {hero} was [so |very |]<sad>[. A tear rolled down {his} nose| that {he} could hardly speak| and sat down on a
  stone|].
- {His} heart sank. [How could that happen?|What would {kin} say?|{He} felt <sad> all over.]
- "It must be here somewhere," {hero} [told {himself}|whispered|said aloud], but {he} was <scared>.

- {He} <looked> {spot}, but [found only {litter}|all {he} found was {litter}|there was nothing but {litter}].
- First {he} <looked> {spot}. {He} found {litter} there, but no {thing}.
- {He} ran back [<quickly>|the way {he} had come] and <looked> {spot}. Nothing.[ All {he} saw was {litter}.|]

/

- Then {pal} came by. "[What is wrong|Why do you look so <sad>|What are you looking for]?" {fhe} asked. "I have lost
  my {thing}," said {hero}. "[Then let us look together|Four eyes see more than two|I will help you]," <said>
  {friend}. [Together they searched everywhere|They searched high and low|They looked at every stone and leaf], and
  {spot2} they saw something {look}. It was the {thing}!
- {He} met {pal}, who was {hobby}. "Have you seen my {thing}?" {he} asked. {friend} thought [hard|for a moment].
  "[When did you last have it|Where were you when you still had it]?" "{Spot2}!" cried {hero}. [They|The two of
  them] <went> back <quickly>, and there it lay.
- Then {he} heard a [small|strange|soft] {hush}. {He} followed it, and {spot2} sat {a_beast}, [guarding|sniffing
  at|curled up on] the {thing}. "[Excuse me|Please], that is mine," said {hero}. The {beast} [blinked|twitched its
  nose|looked up] and [pushed it over|ran off|made room].
- {A_bird} flew down. "[Look|Try|Go and look] {spot2}," it [chirped|said|called], and [away it flew|off it went].
  {hero} could hardly believe {his} ears, but {he} <looked>, and there was the {thing}!
- {kin} [sat down beside {him}|took {his} {hand}|had been listening]. "Close your eyes and walk back in your mind,"
  {khe} said <softly>. {hero} closed {his} eyes. [Grass, stones|The path, the gate|One step, two steps], a little
  stop, and then {he} knew it. {He} <went> back and <looked> {spot2}, and there it was.

?70
- {hero} held the {thing} tight. "[I will never let you go again|There you are|I missed you so much]," {he}
  whispered.
- "<yay>!" <cried> {hero}. "[My {thing} is back|I have my {thing} again|It was here all the time]!"
- [It was a little dirty|There was some mud on it|It was wet with dew], but {hero} did not mind. {He} was so {glad}.
- {He} wiped the {thing} clean and [gave it a kiss|laughed with joy|held it up to the light].

?30
@glee

/

- From that day on, {hero} [always put|never forgot to put] the {thing} [in a safe place|back where it belonged|in
  the same place every night].
- At home {he} tied {a_look_c} ribbon to the {thing}, so that {he} would [always see it|never lose it again].
- "[Thank you|Thanks for everything]," {he} said to [all who had helped|the whole wide world|anyone who would
  listen], and {he} [shared|gave away] {his} last {sweets}.
- And when {hero} went to bed, the {thing} lay [next to {his} pillow|on the chair beside {him}|safe and sound on the
  shelf].
""",
    ),
    "wish": (
        "child",
        "things",
        """
@intro

- In the window of {elder}'s shop stood {a_look} {thing}[, between {a_curio} and some {trinkets}|]. {hero} [wanted
  it|wished for it] more than anything.
- Every [day|morning|week], {hero} stopped at {elder}'s shop to look at {a_look} {thing}. "I wish it were mine,"
  {he} <whispered>.
- {hero} had one [big |secret |]wish. {He} wanted {a_look} {thing}, like the one in {elder}'s shop.

- But it cost {plenty} coins, and {hero} had only [one|two|a button and a bit of string].
- "How much does it cost?" {he} asked. "{Plenty} coins," <answered> {elder}. {hero} [counted|looked at] {his} money.
  It was not enough.
- The trouble was the price. {hero} turned out {his} pockets and found {trinkets}, {trinkets2}, and one coin.

/

?65
- "[You could earn it|Wishing is good, and working is better|A wish needs legs]," <said> {kin}. So {hero} [got to
  work|looked for work|rolled up {his} sleeves].
- {hero} [thought about it all night|did not give up]. [In the morning|The next day] {he} asked {kin} for work.
- "I will save up," {hero} [decided|told {kin}], and {he} put [an old jar|a clay pot|a cookie tin|{a_look_c} bowl]
  on the shelf to keep the coins in.

- On {day} {he} {work}, and on the day after {he} {work2}.
- First {he} {work}. Then {he} {work2}. [Last of all|And in the evenings] {he} {work3}.
- {He} {work} for {a_trade}, and {he} {work2} for {a_trade2}.

?60
- Coin by coin, the [jar|box|old sock] filled up. [{hero} counted them every night.|It jingled nicely.|It took
  <while>.]
- [Sometimes|Now and then] {he} was <tired>, but then {he} thought of the {thing} and went on.

?50
@way

/

- At last {he} had {plenty} coins and <went> to the shop. But outside sat {friend}, [crying|with <a_sad> face|with
  {fhis} head in {fhis} hands]. "[I lost my bus money|I broke my mother's {curio}|My {pet} is sick, and the medicine
  costs so much]," {fhe} said. {hero} looked at the coins, and then at {friend}. [Slowly|Without a word], {he} held
  out {his} {hands}. "[Take them|You need them more than I do|Here]," {he} said. The {thing} stayed in the window.
  [But a week later|On {his} birthday|The next morning], a parcel stood at the door. It was from {elder}, who had
  seen it all. Inside was the {thing}.
- At last there were {plenty} coins. {hero} <went> to the shop <quickly>, but the window was empty. The {thing} was
  [sold|gone]! {He} was <sad>. Then {elder} [winked|smiled] and reached under the counter. "[I kept it for
  you|Somebody asked for it, but I said it was taken|I saw you working, day after day]," {ehe} said, and there it
  was.
- When {he} had {plenty} coins, {hero} <went> to the shop and laid them on the counter. {elder} [counted them
  <carefully>|nodded <softly>] and put the {thing} into {his} {hands}. It was even [lighter|finer|better] than {he}
  had dreamed. At home {he} {played}[ until dark|, and {kin} came out to watch|].

?30
@glee

?70
- "[I earned it myself|It is really mine]," {hero} said, [and {he} had never felt so <glad>|and {his} eyes were
  shining].
- {hero} [never forgot|always remembered] that day, [even when {he} was grown up|and neither did {kin}|and {he} took
  good care of the {thing}].
- "A thing you have waited for is [worth twice as much|twice as dear|the best thing of all]," <said> {kin}, and
  {hero} nodded.
- [Of all the things in {village}|In the whole of {village}], there was nothing that was loved so well as that
  {thing}.

?40
@night
""",
    ),
    "quarrel": (
        "any",
        "things",
        """
- {hero} and {pal} were [best friends|good friends|neighbors and friends]. They [did everything together|played
  {game} every day|liked {hobby} and {hobby2}].
- {hero} had a [good|best|dear] friend, {pal}. They often [played {game}|met {at}|shared {sweets}].
- [Every {day}|After breakfast|Nearly every day], {hero} met {pal} {at}, and they played {game}.

/

- One {weather} {daytime}, they found {a_look} {thing} {spot}. "[I saw it first|It is mine]!" <snapped> {hero}. "No,
  [I did|it is mine]!" <snapped> {friend}.
- One {weather} {daytime}, {hero} brought {a_look} {thing} {to}. "Let me {play} too," [begged|said] {friend}. "No,"
  said {hero}, "[you will only break it|not now|it is mine]."
- One {weather} {daytime}, {friend} came with {a_look} {thing}. {hero} [asked to|wanted to] {play}, [but {friend}
  shook {fhis} head|but {friend} would not share].
- {kin} gave them {a_look} {thing} to share. But [on {day}|one {weather} {daytime}] they both wanted to {play} at
  the same time.

?40
- "You [always get the best things|never let me have anything|think only of yourself|are not my friend]!" <snapped>
  {friend}. {His} own words were [no kinder|just as sharp].
- "[Give it here|Let go]!" "No, you let go!" They [got louder and louder|made such a noise that {a_bird} flew
  away|stamped their feet].

- They [both pulled|pulled and pulled|tugged this way and that]. There was a loud {crack}, and {broke}.
- {friend} [grabbed it|reached for it], {hero} held on, and then, with {a_crack}, {broke}.
- {hero} pulled it away so hard that {broke}. For a moment [it was very quiet|nobody said a word].

/

- "[Now look what you did|This is your fault|I never want to play with you again]!" <snapped> {friend}, and {fhe}
  <went> [home|away] <quickly>. {hero} was <cross> too.
- Both of them were <cross>. {friend} <went> one way, and {hero} <went> the other.
- {hero} was so <cross> that {he} [kicked a stone|turned {his} back|could not speak]. {friend} was <sad> and left.

?70
- At home {he} [tried|wanted] to [play {game}|read about {book}|draw {a_bird}] alone, but it was no fun.
- {hero} ate {soup} and did not taste it. {He} [looked out of the window|listened for steps] for <while>.
- That night {he} could not sleep. [The house was too quiet.|{He} kept thinking of {friend}'s face.]
- The next day was long and {weather2}. There was nobody to [laugh with|talk to|play {game} with].

- "What is the matter?" asked {kin}. {hero} told {khim} everything. "[{A_thing} can be mended, and so can a
  friendship|Things break, but friends need not|Friends are harder to find than {thing_many}]," <said> {kin}.
- {kin} [sat down beside {him}|brought a cup of {drink}] and listened. "[Somebody has to go first|The first step is
  the hard one|It takes two to quarrel, but only one to stop]," {khe} said <softly>.
- "It was {friend}'s fault," {hero} told {kin}. "[All of it|Every bit of it]?" {khe} asked. {hero} [thought about
  it|looked at the floor]. "No," {he} said at last. "Not all of it."

/

- So {hero} <went> to {friend}'s [door|home]. At the same moment the door opened, and there stood {friend}. "I am
  sorry," they both said, and then they both <laughed>.
- {hero} took {number} {sweets} and <went> to {friend}. "I am sorry[ that I shouted|]," {he} said. "[I am sorry
  too|So am I|I missed you]," <whispered> {friend}.
- [On the path|At the corner|Halfway there] {he} met {friend}, who was coming to see {him}. "[I was wrong|I am so
  sorry|Please forgive me]," said {hero}. {friend} [nodded|smiled|held out {fhis} {hand}]. "[Me too|I was no
  better|Let us forget it]."

- [Together|Side by side|With a little help from {kin}] they {mended}. It [was not perfect|looked a little funny],
  but it was theirs.
- They [sat down|put their heads together|fetched what they needed] and {mended}. Then they took turns, and each of
  them counted to {number} before handing it over.
- {kin} [lent them a hand|showed them how]. They {mended}, and by supper the {thing} was [as good as new|almost
  better than before].

/

- [After that|From then on], the {thing} [lived one week with {hero} and one week with {friend}|belonged to both of
  them|was called ours and never mine].
- {hero} and {friend} still quarreled [now and then|sometimes|on {weather2} days], but never for long.
- "You first," said {hero}. "No, you first," said {friend}. [And so they began to laugh again.|And that was the end
  of the quarrel.]
- They played until [the sun went down|the stars came out|{kin} called them in], and {hero} thought that [a friend
  is better than any {thing}|sharing makes a thing twice as big|nothing is as good as a friend].
""",
    ),
    "help": (
        "child",
        "chores",
        """
@intro

?45
@shelf

- Next door lived {elder}, who [was <old>|had once been {a_trade}|kept {a_pet} named {pet_name}]. One {weather}
  {daytime}, {ehe} [stood at the gate and sighed|looked <sad>]: {trouble}.
- One {weather} {daytime}, {hero} <went> past {elder}'s house and heard [a sigh|somebody grumbling|a groan]. It was
  easy to see why: {trouble}.
- It was {a_weather} {daytime}. {hero} was on the way to play {game} with {friend} when {he} saw {elder} [by the
  road|on the steps]. "<oh>," said {elder}, and {ehe} explained that {trouble}.

- "[May I help you|Can I do something|Do you need a hand]?" asked {hero}. {elder} [looked up|smiled]. "[That would
  be kind|If you have the time|You are a good {kind}]," {ehe} said.
- {hero} [wanted to play|was in a hurry], and for a moment {he} [looked away|thought of walking on]. [But then {he}
  thought again.|But {his} feet would not go.] "I will help you," {he} said.
- "I am too [old|slow|stiff] for this," {ehe} said. "I am not," said {hero}. "[Let me try|Just tell me what to do]!"
- "That is too much for one," <said> {hero}, "but there are two of us[ now|]."

/

- So {hero} {labor}.
- {hero} put down {his} {trinkets}, took off {his} {garment}, and [set to work|began]. {He} {labor}.
- It was not easy, but {hero} {labor}.[ It took <while>.|]

?50
- [Once|Twice] {he} almost gave up, [because it was so {weather}|for {his} arms were sore], but {elder} told {him} a
  story about {book}, and [the time flew|the work went faster].
- {A_bird} [watched from the {tree}|sang the whole time], and {a_trade2} who came by [lent them {a_tool}|stopped to
  give advice|whistled a tune].
- [Soon|After a while] {friend} came along too. "[What are you doing|Why are you not at the game]?" {fhe} asked, and
  then {fhe} [took {a_tool} and|rolled up {fhis} sleeves and] helped.
- "You work like {a_trade2}," said {elder}, and {hero} grew [red|an inch|as proud as {a_bird}].

?75
- When everything was done, {elder} [clapped {ehis} hands|wiped {ehis} eyes|looked around in wonder]. "<thanks>,"
  {ehe} said.
- "[There|Finished|That is that]!" said {hero} at last. {elder} could not stop smiling. "[What {a_fine} piece of
  work|You have done {a_fine} job]!" {ehe} said.
- At last [it was done|the work was over]. {hero} was <tired>, but {he} felt [<glad>|{simile}].

/

- {elder} gave {him} {gift}. "[You have earned it|This is for you|It is not much, but it comes from the heart],"
  {ehe} said.
- "Wait," said {elder}, and {ehe} came back with {gift}. {hero} [beamed|did not know what to say|said thank you
  <twice>].
- {hero} did not want anything for it, but {elder} [would not hear of it|shook {ehis} head] and gave {him} {gift}.

/

- After that, {hero} <went> over every {day}, [and the two became good friends|and {elder} was never lonely
  again|just to see what there was to do].
- On the way home {he} thought that [helping is a kind of playing|a small kindness goes a long way|the {chore} had
  been more fun than any game].
- "[Where have you been|Why are you so tired|What have you been doing]?" asked {kin}. {hero} told {khim} about the
  {chore}, and {kin} [was very proud|gave {him} a kiss].
- And when {hero} needed help with {a_curio}, [who came at once|guess who was there first]? It was {elder}.

?25
@night
""",
    ),
    "fear": (
        "any",
        "fears",
        """
@intro

/

- There was only one thing that {hero} was [scared|afraid|frightened|terrified] of, and that was {fear}.
- {He} was not afraid of {herd}, or of {fabled_folk}, or even of {herd2}. But {he} was afraid of {fear}.
- But {hero} had a secret. {He} was afraid of {fear}[, and nobody knew it|, and only {kin} knew it|].
- Nobody is brave all the time. {hero} was afraid of {fear}.

?40
- The [others|bigger ones] [laughed|teased {him}] about it[, and that made it worse|]. {hero} [pretended not to
  hear|looked at the ground|wished {he} were {a_fabled}].
- {He} tried [everything|all kinds of things]: {he} [counted backward|sang|shut {his} eyes], {he} carried {trinkets}
  for luck, [and once {he} hid inside {a_curio}|and nothing helped].

- One {weather} {daytime}, it happened again. {moment}.
- But on {a_weather} {daytime}, there was no way around it. {moment}.
- Then came {day}. {moment}.

?75
- {His} knees [shook|turned to jelly], and {his} heart went [thump, thump, thump|boom, boom, boom|as fast as
  {a_vehicle}].
- {hero} [wanted to run away|could not move|hid {his} face]. "I cannot do it," {he} <whispered>.
- "[Help|<oh>]!" <wailed> {hero}, and {he} [ran to {kin}|held on to {kin}|hid behind {kin}].

/

- {kin} did not laugh. "[I used to be afraid of {fear} too|When I was small, I was just the same|Everybody is afraid
  of something]," {khe} said <softly>. "{advice}."
- {kin} knelt down. "Shall I tell you [a secret|what my grandfather told me]?" {khe} asked. "{advice}."
- "[Being brave does not mean that you are not afraid|Brave people are afraid too]," said {kin}. "{advice}."
- Then {pal} came and stood beside {him}. "I know a trick," <said> {friend}. "{advice}."

?40
- "[Will you stay with me|Will it really help|Are you sure]?" <asked> {hero}. "[Of course|I promise|You will see],"
  was the answer.
- {hero} was not sure. But {he} took a deep breath, [and another one|and counted to {number}].

- So {hero} {deed}.
- {hero} [swallowed hard|bit {his} lip|squeezed {his} {hands} into fists]. Then {he} {deed}.
- [Slowly|Carefully|With a deep breath|Step by step|A little at a time], {hero} tried it. {He} {deed}.

/

- "[I did it!|Look at me!|Did you see that?]" <cried> {hero}.
- It was not [half|nearly] as [bad|hard|terrible] as {he} had [thought|feared]. {hero} [almost wanted to do it
  again|began to laugh|let out a long breath].
- [And then it was over|And that was all]. {hero} [blinked|looked around] and felt <glad>.

?60
- To celebrate, {kin} [baked {a_cake}|opened a jar of {fruit}|brought out {sweets}], and {hero} told the story
  <twice>.
- The next time, {hero} was still a little <scared>, but only [a little|as much as {a_small} {beast}].

- After that, {hero} was [hardly|almost never|no longer] afraid of {fear}. And when {he} met [a little one|somebody]
  who was, {he} said, "{advice}."
- "How did you do it?" {friend} wanted to know. "[I was afraid, and I did it anyway|It gets smaller when you look at
  it]," said {hero}.
- And {fear}? [{hero} could laugh about that now.|{hero} did not think about that any more.|That was an old story.]
- {hero} learned that [a fear gets smaller when you look at it|courage grows when you use it|the first step is the
  hardest].
""",
    ),
    "make": (
        "any",
        "makings",
        """
@intro

?30
@shelf

- One {weather} {daytime}, {hero} [had nothing to do|was bored|looked out of the window]. "[I know|I have an
  idea|Wait a minute]," {he} said. "I will make {a_making}!"
- "Nobody in {village} knows how to make {a_making}," {kin} said one {weather} {daytime}. "I will try it," {hero}
  [decided|answered].
- "Can you make {a_making}?" {friend} asked one {weather} {daytime}. "[Of course I can,|I have never tried,|How hard
  can it be?]" said {hero}.
- One {day}, {hero} saw {a_making} in a book about {book}. "I want one like that," {he} said, "and I will make it
  myself."

- {He} [fetched|gathered|found|collected] {parts}.
- {He} <looked> in every [drawer|corner|cupboard] for what {he} needed: {parts}.
- "What do we need?" asked {kin}. {hero} [counted on {his} fingers|made a list]: {parts}.
- {A_trade} gave {him} a few things, and {kin} gave {him} the rest. Soon {parts} lay on the table.

/

- <Carefully>, {he} {made} the {making}. It took <while>.
- {He} worked [all morning|until noon|for <while>] and {made} the {making} <carefully>.[ {His} tongue stuck out a
  little.| {He} did not even stop for {soup}.|]
- {He} [measured, mixed, and hummed|pushed, pulled, and puffed|tried one way and then another], and bit by bit {he}
  {made} the {making}.

?30
- "What is that going to be?" asked {friend}. "[Wait and see|It is a secret|Guess]," said {hero}.
- {A_bird} came to the window to [watch|see what was going on]. Even {a_trade} stopped and stared.

- But then came the trouble: {mishap}.
- {hero} stepped back to look. <oh>! There was a problem: {mishap}.
- It was nearly done when {he} saw it: {mishap}.

?70
- "It is [no good|ruined|all wrong]," said {hero}. {He} was <sad>[ and wanted to throw it away|].
- {hero} was <cross>. {He} [stamped {his} foot|sat down with {his} back to it|wanted to give up].
- "[Everything goes wrong|I will never learn it]," <whispered> {hero}.

/

- "[Nothing is ever right the first time|A mistake is only a step|Let us have a look]," <said> {kin}. They thought
  for a while, and then {hero} {remedy}.
- {pal} came to look and [scratched {fhis} head|walked around it <twice>|whistled]. "What if you [try something
  else|do it the other way round]?" {fhe} said. So {hero} {remedy}.
- {hero} [took a break|had a cup of {drink}|went for a walk]. When {he} came back, {he} knew what to do. {He}
  {remedy}.
- That night {he} lay awake and thought. In the morning {he} jumped up, ran to the {making}, and {remedy}.

- {outcome}.
- And it worked! {outcome}.
- "<yay>!" <cried> {hero}. {outcome}.

- "[Did you really make that yourself?|Who taught you that?|How did you do it?|What {a_fine} {making}!]" said
  {elder}. {hero} nodded [proudly|shyly|happily] and showed {his} {hands}, which were [full of
  scratches|sticky|covered with {look_c} spots].
- {hero} was {glad}. [It was not the finest {making} in the world|It was a little crooked], but {he} had made it
  {himself}.
- "Next time," said {hero}, "I will make {a_curio}!" And {kin} <laughed>.
- That night {hero} wrote in {his} diary: today I made {a_making}, [and it works|and I am not sorry|and tomorrow I
  will show it to {friend}].
- "[A mistake can be the start of a good idea|If at first it does not work, try again|Good things take time],"
  {hero} told everybody who asked about the {making}.
""",
    ),
    "surprise": (
        "any",
        "cake",
        """
@intro

- It was {kin}'s birthday [soon|the next day|on {day}], and {hero} wanted to surprise {khim}[ with {a_cake}|].
- "{kin} always [does everything for us|works so hard|bakes for everyone else]," {hero} said to {pal}. "[Let us give
  {khim} a party|This time we will surprise {khim}]!"
- {hero} had a [big|wonderful] secret. There was going to be a party for {kin}, with {a_cake} and {number} candles,
  and {khe} must not know.

- {He} asked {pal} to help. "I can [bring|carry] {a_curio}," <said> {friend}, "and I will not tell a soul."
- {pal} came to help, [with a basket of {fruit}|through the back door|in {a_look_c} {garment}]. "[What shall I
  do|Where do we begin]?" {fhe} <whispered>.
- {hero} and {his} friend {pal} made a list: {fruit}, {sweets}, {drink}, and {a_cake}.

- [First|In the kitchen] they <stirred> the dough for the {cake} [and added {sweet_spice}|with {fruit} and
  {sweet_spice}]. There was flour [on the floor|on {friend}'s nose|everywhere].
- {hero} baked {a_cake} while {friend} hung up chains of {look_c} paper and [bunches of {flowers}|strings of
  {trinkets}].
- While the {cake} was in the oven, they [wrapped {a_curio} in {cloth}|blew up {number} balloons|practiced a song on
  the {instrument}].

?35
- For a present, they had {a_look_s} {garment2}, [made by {friend}|a little too big], and a box of {trinkets2}.
- {elder} lent them {a_curio2} and {number} chairs, and {a_trade} [brought {sweets}|promised to play the
  {instrument}].

/

- Just then they heard steps. {kin} was [coming home early|at the door]! "[Quick|Hide everything]!" <called> {hero}.
  They pushed the {cake} [under the table|behind the curtain|into the cupboard].
- "What smells so good?" {kin} called from the hall. "[Nothing|Only soap|That is the neighbor's {soup}]!" said
  {hero}, and {friend} [coughed|held {fhis} breath].
- Suddenly {kin} came in. "Why is there flour on your [nose|chin|ears|{garment}]?" {khe} asked. "[It is snowing|We
  were playing {game}|I sneezed at the wrong moment]," said {hero} <softly>.

- {kin} [looked puzzled|shook {khis} head|raised {khis} eyebrows] and [went out again|went to feed the
  {farm_animal}|went upstairs]. {hero} let out a long breath.
- "Hm," said {kin}, and {khe} [went off to find {khis} {garment}|turned away with a little smile].

?40
- Then came [a bad moment|bad luck]: {a_pet} [jumped on the table|ran in] and took a bite out of the {cake}! They
  [turned that side to the wall|covered the hole with {flowers}|filled the gap with {fruit}].
- The {cake} had sunk a little in the middle, so they [filled it with cream|put {fruit} on top|stood a candle in the
  hole].

/

- When {kin} opened the door, everyone jumped up. "Surprise!" they [cried|shouted|called out|sang|roared].
- At {hour} o'clock {hero} led {kin} in with {khis} eyes closed. "[Now you may look|Open your eyes|One, two,
  three]!" {he} said.
- The lamps were out. {kin} came in, and [all at once|before {khe} could sit down|at the first step] there was light
  and music. "Happy birthday!" <cried> {hero}.

?70
- {kin} was <surprised>. {Khe} [laughed and cried at the same time|hugged them all|put {khis} hands to {khis}
  cheeks]. "[Is this all for me|You did all this|So that was the flour]?"
- "[Oh|My goodness|Good heavens]!" said {kin}. [For once {khe} did not know what to say.|Then {khe} had to sit
  down.] {Khe} was so <glad>.

?75
- They [ate|shared] the <tasty> {cake} and drank {drink}, and {friend} played the {instrument}[ until late|].
- Everybody got a piece of the {cake}, even {elder}, [who had only come to borrow {a_tool}|who asked for the
  recipe].
- Then there was dancing, and {elder} sang a song about {book}.

- "[Did you guess it|Did you know]?" {hero} asked at bedtime. {kin} winked. "[Well, there was the flour|I guessed
  nothing at all|You told me in your sleep]," {khe} said.
- "[Giving is even better than getting|Next year we will do it again|That was the best secret of all]," said {hero},
  [yawning|and {he} meant it].
- And {hero} was {glad}, for [the best part of a surprise is making it|nothing is nicer than a secret with cake in
  it].
""",
    ),
    "skill": (
        "child",
        "skills",
        """
@intro

- There was one thing {he} could not do. {He} could not {skill}.
- [All|Nearly all] the [other children|children in {village}] could {skill}, but {hero} could not.
- "I want to learn to {skill}," {hero} [said|announced] one {weather} {daytime}.
- {hero}'s friend {friend} could {skill}. {hero} watched {fhim} for <while>. "I want to do that too," {he} said.

?30
@shelf

- "[Then try it|Go on, then|Then start today]," said {kin}. So {hero} tried, but {he} {tries}.
- The first time, {he} {tries}. [Everybody laughed.|{He} tried not to cry.|It was not a good beginning.]
- {hero} [took a deep breath|closed {his} eyes|counted to three] and tried. {He} {tries}.

- The second time, {he} {tries2}.
- {He} tried again[, and this time|, and] {he} {tries2}.[ {A_bird} seemed to laugh.| <oh>!|]
- The next day was no better: {he} {tries2}.

?70
- "I [give up|will never learn it]!" <wailed> {hero}. {He} was <sad>.
- {hero} was <cross>. "It is [too hard|impossible]," {he} <said>, and {he} [threw down {his} {garment}|sat down on
  the steps|kicked a stone].
- {He} wanted to stop and [play {game}|read about {book}|go home] instead.

/

- {elder}, [the {trade}|who lived next door|who had been watching], came over. "[I was slow to learn it too|Nobody
  can do it the first time|You are closer than you think]," {ehe} said <softly>. "{tip}."
- {kin} sat down next to {him}. "[It took me a whole {season}|I was no better at your age|Slowly does it]," {khe}
  said. "{tip}."
- "Shall I show you?" asked {friend}. "[It is like this|Here is the trick]. {tip}."

?50
- "[Like this|Is that right]?" asked {hero}. "[Almost|Better|Once more]," was the answer.
- "That sounds [easy|too simple]," said {hero}, [but {he} listened|but {he} was ready to try].

- {hero} practiced [every day|each morning|after school] for <while_days>.[ Some days it went well, and some days it
  did not.| {He} got a bruise and {a_look_c} bandage.|]
- {He} tried it <twice>. Little by little it [got better|began to work].
- Day after day {he} practiced, [in sun and rain|before breakfast|with {a_bird} looking on], and {he} did not count
  how often it went wrong.

/

- Then, on {a_fair} {day}, {he} {success}!
- One {fair} {daytime}, something [changed|clicked]. {hero} {success}.
- And at last, when [nobody was looking|{he} had stopped thinking about it], {he} {success}.

- "[I can do it!|Look, look!|Did you see that?]" <cried> {hero}.
- {hero} could hardly believe it. {He} did it again, [just to be sure|and then again].
- "<yay>!" shouted {friend}, and {kin} clapped.

- "What was the secret?" asked {friend}. "[I got it wrong {number} times, and then I got it right|I stopped being
  afraid of mistakes|I kept trying]," said {hero}.
- Now {hero} can {skill} whenever {he} likes, and [{he} teaches the little ones|{he} never laughs at beginners|{he}
  has started to learn something new].
- "[Practice is a kind of magic|Slow and steady gets there too]," said {kin}. {hero} was {glad}[ and <tired>|].
- That evening {he} told {his} {pet}[, {pet_name},|] all about it, and then {he} [fell asleep|ate {number}
  {sweets}|did it once more in the hall].
""",
    ),
    "visit": (
        "child",
        "hosts",
        """
@intro

- [In {month}|In the {season} holidays|On {a_weather} {day}], {hero} went to visit {uncle}, who lived {lodging}.
- A letter came from {uncle}, who lived {lodging}. "[Come and stay with me|Bring your {garment} and come|There is a
  bed for you here]," it said.
- "Pack your bag," said {kin} to {hero} one {daytime}. "We are going to see {uncle}." {uncle} lived {lodging}.

?70
- {hero} packed {a_garment}, {trinkets}, and a book about {book}.
- In {his} bag {he} put {number} {sweets}, {his} {thing}, and <a_look_c> <garment>.
- {hero} was so [excited|happy|eager] that {he} [forgot {his} {garment}|packed {his} bag <twice>|could not sleep].

- They went by {transport}[, and then by {transport2}|]. From the window {hero} saw {a_farm_animal}, {a_bird}, and
  [{number} bridges|a boat called the {boat}|the towers of {village3}].
- The way was long. {hero} counted [cows|bridges|church towers|{bird} nests|milestones] [until {he} fell asleep|all
  the way|and lost count at {number}].
- {A_trade} on the {transport} gave {him} {sweets} and asked where {he} was going. "To {uncle}," said {hero}
  [proudly|shyly|with {his} mouth full].

/

?75
- {uncle} was waiting [at the gate|at the door|by the road] in {a_look_c} {garment2}. "[How you have grown|There you
  are at last|Welcome]!" {uhe} <cried>.
- "[Come in, come in|You must be hungry]!" {uncle} <cried>, and the first thing there was to eat was {treat}.

- The next morning {hero} was allowed to {job}. [It was hard at first|{He} had never done that before|{His} hands
  shook a little], but {uncle} showed {him} how.
- "A guest who works is a friend," <said> {uncle}, and so {hero} learned to {job}.
- Every morning {hero} got up early to {job}, and in the evening {uncle} [played the {instrument}|told stories about
  {book}|showed {him} how to play {game}].

?50
- From the [roof|top window|little hill], you could see {view}.
- "[Look|Come and see this]," said {uncle}. Before them lay {view}. {hero} [could not say a word|forgot to
  blink|held {his} breath].

?50
- Only at night {hero} was a little [sad|homesick|lonely] and thought of {kin}. Then {uncle} [lit a lamp|brought
  {drink}|sat on the bed] and [sang softly|told {him} about {land}|stayed until {he} slept].
- One night there was a strange {hush}. {hero} was <scared>, but it was only {a_beast} [at the door|on the roof|in
  the bucket].
- On {day} {he} made a friend there, {friend}, and they [played {game}|looked for {trinkets}|ate {treat}] together.

/

- Then the week was over[, much too soon|]. {uncle} gave {him} {a_curio} [to remember the {host}|and a kiss].
- [When it was time to go|On the last day], {uncle} put seven {trinkets} into {his} hand. "[One for every day|So
  that you come back]," {uhe} said.
- "Must I go home already?" asked {hero}. "[The {host} will still be here|The door is always open]," <answered>
  {uncle}.

/

- At home {he} [talked and talked|could not stop talking] about the {host}, and {kin} [listened with a smile|asked a
  hundred questions].
- "What did you like best?" asked {kin}. {hero} thought of the {host}, and of {treat}. "[Everything|All of it|I
  cannot choose]," {he} said.
- That night {hero} slept in {his} own bed and dreamed that {he} was back at the {host}[, with {uncle} and
  {a_far_animal}|].
- "When I am big," said {hero}, "I will live in {a_host} too." And {kin} [said that it was a fine plan|did not
  laugh].
""",
    ),
    "rule": (
        "child",
        "rules",
        """
@intro

?35
@shelf

/

- "{order}," said {kin} [one {weather} {daytime}|before {khe} went out|on {day}]. "[I promise|Yes, yes|Of course
  not]," said {hero}.
- There was one [rule|law|thing] in {kin}'s house that [nobody was allowed to forget|mattered more than all the
  rest|everybody had to know]. "{order}," {kin} [always said|said every day].
- {kin} was going out to buy {fruit}. "{order}," {khe} told {hero}[, and {khe} said it <twice>|]. "[I know|You can
  trust me]," said {hero}.

- At first {hero} [played {game} with {his} {trinkets}|read about {book}|looked out at the {bird}]. But {he} could
  not stop thinking about it. {lure}.
- But [it was a long {daytime}|the {daytime} was long], and {hero} got bored. {lure}.
- For <while> {he} was good. Then {he} [stopped|looked around]. {lure}.

?30
- "[Only once|Just a little|Nobody will see it]," {he} [told {himself}|whispered].
- "You are not allowed to do that," said {friend}. "[It is only for a minute|Nobody will know]," said {hero}.

- So {hero} {deed}.
- {hero} looked left and right. Then {he} {deed}.
- Before {he} knew it, {he} {deed}.

- {harm}.
- It all happened very fast. {harm}.
- And then? {harm}.

/

?60
- {hero} was <scared>. What [should|would] {he} [do|say] now?
- {His} face [went hot|turned white], and {his} stomach felt like {a_far_animal} was sitting on it.
- "<oh>," <whispered> {hero}. {He} wished that {he} could turn back the clock.

- When {kin} came home, {he} [wanted to say that|almost said that] {a_pet} had done it. But the words [stuck in
  {his} throat|would not come out]. "It was me," {he} said at last.
- First {hero} [hid behind the curtain|hid in the closet|ran to {his} room]. But {he} could not hide all day. "I
  have to tell you something," {he} said to {kin}, and {he} told {khim} everything.
- "What happened here?" asked {kin}. {hero} looked at {his} shoes. "I [broke the rule|did what you told me not to
  do]," {he} <whispered>. "I am sorry."

?40
- {His} friend {friend} [stood by {him}|nodded]. "I was there too," {fhe} said, [and that was brave|though {fhe} did
  not have to].

?80
- {kin} was quiet for a while. "I am [cross|angry|not pleased]," {khe} said, "but I am glad that you told me the
  truth. [Now let us see what we can do|Now you can help me to put it right]."
- {kin} [sighed|took a deep breath]. "[Rules are there for a reason|Now you know why I said it]," {khe} said
  <softly>. "But telling the truth [takes courage|was right]."
- "[That was wrong|I am not happy about that]," said {kin}, "but a lie would have been worse." And {khe} [held out
  {khis} hand|gave {him} a hug].

/

- So {hero} {amends}.
- The next day {hero} {amends}, and nobody had to ask {him}.
- To make up for it, {hero} {amends}.

?80
- {hero} never forgot the {rule}, [and when {kin} went out again, {he} was as good as gold|or the look on {kin}'s
  face].
- "Are you still [cross|angry|mad]?" {he} asked that night. "[Not any more|Not one bit|I was never good at that],"
  said {kin}, and {khe} kissed {him} on the nose.
- Since then, whenever {hero} thinks of the {rule}, {he} [laughs a little|scratches {his} head], and then {he} does
  what {he} was told.
- {hero} learned that [a promise is easier to break than to mend|the truth is heavy to say but light to carry|it is
  better to ask first].
""",
    ),
    "contest": (
        "any",
        "contests",
        """
@intro

- Every {season} there was {a_contest} in {village}, and the prize was {a_look_m} cup [full of {sweets}|and
  {a_curio}].
- One {daytime}, {a_trade} put up a sign: there would be {a_contest} on {day}, and the winner would get {a_curio}.
- "There is going to be {a_contest}!" {kin} read aloud from the paper. {hero} [jumped up|dropped {his} spoon]. "I
  want to [win|be in it]," {he} said.

?75
- {He} wanted to win so much that {he} {practice}.
- For <while_days>, {hero} did nothing else: {he} {practice}.
- {hero} {practice}, and {kin} [kept the time|gave good advice|said that it was quite enough].

- But {pal} wanted to win too, and {friend} was [very good|the best of them all|last year's winner].
- "[I am going to beat you|You have no chance]," <said> {pal}. {hero} said nothing, [but {he} worked even harder|but
  {his} ears were hot].
- The one to beat was {pal}, who [had won it <twice>|never made a mistake|wore {a_look_c} {garment} for luck].

?30
@birds

/

?70
- The great day came. It was {weather}, and [all of {village}|a big crowd] [had come|stood there], even {a_trade2}
  with {a_instrument}.
- On {day} there were flags everywhere. {A_trade2} sold {sweets}, and {a_trade3} beat a drum.
- {hero} was so <scared> that {he} could not eat {his} {soup}. Then somebody called, "[Ready, steady, go|Let the
  {contest} begin]!"

- [Soon|Very soon|Before long] {hero} was in front. {He} could already see {goal}. Just then {friend} {trouble}.
- At first it went [badly|slowly|all wrong], and then [better and better|better|so well that people stared]. Then,
  close to {goal}, {friend} {trouble}.
- {hero} and {friend} were [side by side|well ahead of all the rest]. Suddenly {friend} {trouble}.

- {hero} [stopped|looked back|saw it]. [It was {his} chance to win|Now nothing could stop {him}]. But {friend}
  [looked so <sad>|was all alone]. {hero} [did not think for long|turned around]: {he} {aid}.
- "[Go on|Do not wait for me]!" said {friend}. But {hero} shook {his} head, and {he} {aid}.
- For one moment {hero} thought of the prize. Then {he} thought of {friend}, and {he} {aid}.

?50
- "Why did you do that?" asked {friend}. "[Because I want to win fair and square|You would have done it for me|It is
  only {a_contest}]," said {hero}.
- The crowd [went quiet|held its breath|began to clap], and somewhere {a_pet} sneezed.

/

- They came in last, but [nobody clapped for the winner as loudly as for them|everybody cheered as if they had won].
- In the end {elder} won the cup, to everyone's surprise, and {hero} and {friend} shared [the second prize|{sweets}
  on the grass]. They were <glad> all the same.
- They reached {goal} at the very same time. "[Two winners|We have two winners]!" <cried> the judge, and the prize
  was cut, or counted, in half.
- {hero} did not win. But {friend} came over and gave [{fhis} lucky button|half of the {sweets}|{fhis} {garment}] to
  {him}. "You are the real winner," {fhe} said.

?30
@glee

/

- After the {contest}, {hero} and {friend} [were friends for life|practiced together|became the best of friends].
- "Next year," <said> {hero}, "[I will beat you|we will do it as a team]." "[We will see|Just you try]," said
  {friend}, and they both <laughed>.
- "I am prouder of you than if you had won," said {kin}, and {hero} [turned red|felt {simile}|grew a little taller].
- On the way home {hero} thought that [winning is nice, but a friend is nicer|there is more than one way to win].
""",
    ),
    "rescue": (
        "rambler",
        "patients",
        """
@intro

- One {weather} {daytime}, {hero} <went> {to}. {Spot} {he} heard a [soft|faint|sad little] sound. It was
  {a_patient}, and {hurt}.
- On {day}, {hero} and {kin} were {at} when they found {a_patient} {spot}. [Poor thing! |]It did not run away, and
  they soon saw why: {hurt}.
- "[Look|Come quickly], there is something {spot}!" <called> {hero} one {weather} {daytime}. It was a little
  {patient}, and {hurt}.

?65
- "[Do not be afraid|I will not hurt you|You are safe now]," {he} said <softly>.
- {hero} knelt down [slowly|beside it|in the grass]. The {patient} looked at {him} with [round|shining|dark] eyes.
- "Can we help it?" {hero} asked. "[We can try|If we are gentle]," <answered> {kin}.

?40
- {His} friend {friend} said that it was [too late|no use|only {a_patient}], but {hero} would not listen.
- {He} took off {his} {garment} and [made a soft bed of it|held it like a nest].

- {He} took it home and {care}.
- {hero} and {kin} {care}. [{hero} hardly dared to breathe.|It held quite still.]
- {elder}, who knew about animals, told {him} what to do. {hero} listened and {care}.

/

?75
- Every [few hours|morning and evening], {he} gave it {food}.
- It would not eat at first. Then {hero} brought it {food}, and [it took one little bite|the bowl was soon empty].
- {hero} [read to it about {book}|sang to it|talked to it] and fed it {food}.

- {hero} called it {pet_name2}, [after {a_trade} in a book|because of its {look_c} nose|and it seemed to like that].
- "Your name is {pet_name2}," {he} told it. It [sneezed|blinked|turned its head], and that meant yes.

?40
- The first night {hero} could not sleep. {He} got up <twice> to [see if it was still breathing|fill the bowl with
  fresh water].

- Day by day it grew stronger. [One morning|After <while_days>] it {strength}, and everybody <laughed>.
- Soon it {strength}. "[Somebody is feeling better|It will not need us for long]," said {kin}.

?50
- {hero} wanted to keep it forever. "[It would be so happy here|I will build it a house]," {he} said. "[It has a
  home of its own|It would miss the sky and the grass]," {kin} answered <softly>.
- "Must we let it go?" {hero} asked, and {his} voice was [small|thin|very quiet]. {kin} [nodded|put an arm around
  {him}].

/

- So on {a_fair} {daytime} they [carried it|brought it back] {to} and opened the box. {pet_name2} {farewell}.
- [At last|Before long|Much too soon], the day came. {hero} opened {his} {hands}. {pet_name2} {farewell}.

?70
- {hero} cried a little, but {he} was also <glad>.
- "Goodbye, {pet_name2}," {he} <whispered>. "[Take care|Come and see me|Be happy]."
- {hero} waved for <while>. [Then {he} took {kin}'s hand.|Then {he} blew {his} nose.]

?70
- And sometimes, when {hero} was {at}, {he} heard {a_hush} {spot2}, and {he} knew [who it was|that it was
  {pet_name2}|that somebody had not forgotten {him}].
- "To love something is sometimes to let it go," said {kin}.
- The empty box still stands by the stove, [just in case|with {a_look_c} ribbon on it|and nobody may move it].
- After that, {hero} wanted to become a vet, and {he} [practiced on {his} dolls|read every book about animals|was
  always ready with {a_garment} and some string].
""",
    ),
    "garden": (
        "any",
        "plants",
        """
@intro

- {elder} gave {him} a [small|brown|wrinkled] seed. "[Plant it and wait|Guess what is inside|There is {a_plant}
  asleep in it]," {ehe} said.
- On {day}, {kin} came home with a little bag. "[Are those {sweets}|Did you bring {sweets}]?" asked {hero}.
  "Something better," <answered> {kin}. "It is a seed."
- [In spring|One {daytime} in April], {hero} found a seed {spot}. "[What are you?|Who lives in there?|What will you
  be?]" {he} asked it.

- {hero} [dug a hole|made a hole with one {hand}|borrowed a trowel], put in the seed, and [covered it with
  earth|watered it <carefully>|patted the earth flat].
- {hero} planted it [by the fence|beside the {flowers}|next to {kin}'s {greens}] and put up a sign that said: please
  do not step here.

?80
- Every [day|morning] {he} [ran out|went] to look, [but there was only earth|but nothing happened]. "[Hurry up|Wake
  up|Grow]!" {he} told it.
- {He} waited one day, two days, {number} days. Nothing. {hero} was <sad>.
- "[Shall I dig it up and see|Why is it so slow]?" {hero} asked. "[You cannot hurry a seed|Good things need
  time|Patience]," said {kin}.

?50
- {He} [sang to it|read it a story about {book}|played it a song on the {instrument}], and {he} gave it water [from
  {a_curio}|every evening].
- {pal} <laughed>. "You are talking to mud," {fhe} said. But {hero} [did not mind|knew better].
- To pass the time, {he} [sorted {his} {trinkets}|played {game}|counted {insects}].

/

- Then, one {fair} {daytime}, {he} saw {sprout}. "<yay>!" <cried> {hero}.
- And one {daytime} after the rain, {he} saw something in the earth: {sprout}! {hero} danced around it.
- {His} friend {pal} saw it first. "Come here!" {fhe} <cried>. [Where there had been only earth|In the middle of the
  brown earth], they saw {sprout}.

- It grew and grew. But [then|one day|before long], {danger}.[ <oh>!| What now?|] {hero} {rescue}.
- All went well until {danger}. {hero} [did not wait|jumped up|knew what to do]: {he} {rescue}.
- One {weather} {daytime}, {hero} got a fright, for {danger}. "I will look after you," {he} said, and {he} {rescue}.

?40
- "[You are a real gardener now|You have a green thumb]," said {elder}, and {hero} was <glad>.
- {He} measured it every {day} with {a_look_c} string. It was as tall as {a_farm_animal}, or so {he} said.
@birds

/

- [In the end|When the time came|When all the work was done], the {plant} had given them {yield}.
- And what did {he} get for all that [work|care|waiting and watering]? From one small {plant} came {yield}.
- {hero} had never been so <glad>. The {plant} had kept its promise and given {him} {yield}.

?60
- {He} gave some to {elder}, some to {friend}, and [the rest to {kin}|kept the rest for winter].
- They [had a party|ate outside] that evening, with {sweets}, {drink}, and [candles in the {tree}|music on the
  {instrument}].
- "[I only gave it water|It did it all by itself]," said {hero}. "[And time|And love]," said {kin}.

/

- {hero} kept one seed in a matchbox. It lay [there all winter|next to the {trinkets}], small and brown, and waited
  for spring.
- Since then {hero} [has never said|does not say] hurry up to a seed, [or to anybody else|nor to {his}
  friends|except in a whisper].
- "What shall we plant next?" asked {hero}, and {he} was already [looking for {a_tool}|thinking of
  {greens}|digging].
- And in {his} dreams, that night, the {plant} grew up to the moon, [and {he} climbed it|and {a_bird} sat on top].
""",
    ),
    "share": (
        "any",
        "sweets",
        """
@intro

- One {weather} {daytime}, {kin} gave {him} a [big |whole ]bag of {sweets}. There were {number} of them, and they
  smelled of {sweet_spice}.
- For {his} birthday, {hero} got a [tin|box|basket] full of {sweets}. [They were still warm.|They were tied up with
  {look_c} ribbon.|They looked <tasty>.]
- {kin} had baked {sweets}. "[Take them with you|They are for you and your friends]," {khe} said, and {khe} filled
  {hero}'s {look_c} basket.

- {hero} <went> {to} and sat down {spot}. [{He} was going to eat all of them.|What a feast!]
- {He} hid them under {his} {garment} and <went> {to}. "[They are all mine|I will not tell anybody]," {he}
  [thought|whispered].

?40
@birds

- {pal} came by. "[May I try one|May I have one|Will you give me one]?" {fhe} asked. "[No|No, they are mine|There
  are not enough]," said {hero}.
- Soon {pal} sat down beside {him} and looked at the {sweets}. {hero} [turned away|closed the lid|held them tight].
  "[They are not for you|I only have a few]," {he} said.

?55
- "Just a crumb?" begged {a_bird} from the {tree}. "[Go away|Not one]!" said {hero}.
- Then came {elder}, [hungry and <tired>|on the way home from work]. {hero} pretended not to see {ehim}.
- {A_beast} crept close and sniffed. {hero} [shooed it away|stamped {his} foot].

/

- {hero} ate one, and another, and another. After {number} {sweets}, {his} stomach [hurt|was as tight as a drum].
  And {friend} was gone. {hero} felt <sad>.
- {He} jumped up to find a better place, and then it happened: {he} tripped, and half of the {sweets} [rolled into
  the mud|flew in every direction|fell into a puddle]. {hero} [burst into tears|sat there and stared].
- {hero} looked up. [Far off|Over there], {friend} and the others were playing {game} and laughing. Nobody called
  {him}. The {sweets} did not taste [so sweet|of anything] any more.
- Then the weather changed, and {hero} sat all alone under {a_tree} in the rain. {He} had {sweets}, but nobody to
  talk to.

- {friend} [came back|saw it] and sat down next to {him}. {Fhe} took {a_fruit_one} out of {fhis} pocket and broke it
  in two. "[Here|Half for you]," {fhe} said. {hero} [grew red|looked at the ground]. "I was so mean," {he} said.
- {hero} thought for <while>. Then {he} took what was left of the {sweets} and <went> over to {friend}. "I am
  sorry," {he} said. "[Please have some|Let us share them]."
- "[What is wrong|Why do you look so <sad>]?" asked {kin} when {he} came home. {hero} told {khim}. "[Half a cake
  with a friend is more than a whole one alone|Joy is a thing that grows when you cut it in pieces]," <said> {kin}.
  So {hero} went to look for {friend}[, with the last of the {sweets}|].

/

?75
- They [counted|divided] the {sweets}: one for {hero}, one for {friend}, and one for {elder}. [There was even a
  crumb for the {bird}.|It came out just right.]
- Everybody got a piece, even the {bird} in the {tree}, and [they were gone in a minute|it tasted better than ever].
- {elder} brought {drink}, {friend} brought {fruit}, and soon it was a real [party|feast|picnic].

?55
- "[They taste better this way|It is funny]," said {hero}. "[I have fewer, and yet I have more|Now there is less to
  eat and more to laugh about]."
- {friend} <laughed>, with crumbs on {fhis} nose, and {hero} was {glad}.
- "Do you want the last one?" asked {hero}. "[You take it|Half and half]," said {friend}.

/

- From then on, {hero} [always asked for one bag and two spoons|never ate {sweets} alone|shared even {his}
  {trinkets}].
- The next time there were {sweets}, {hero} [called everybody|rang a bell], and they all came [running|at once].
- {He} had learned that [sharing makes a small thing big|an empty bag can be worth more than a full one|{sweets} are
  for friends].

?25
@night
""",
    ),
    "storm": (
        "any",
        "curio",
        """
@intro

/

- One {daytime}, {hero} was {at} with {pal}. They [played {game}|looked at {sight}|were looking for {trinkets}], and
  nobody looked at the sky.
- It had been {a_fair} day. {hero} and {pal} were {at}, and they saw {sight}.
- {hero} and {pal} had gone {to} to [look for {fruit}|play {game}|watch the {bird}].

- [Then|Suddenly|All at once] the wind [began to blow|came up|turned cold]. Dark clouds [rolled in from
  {village}|piled up like {a_far_animal}|swallowed the sun]. "[A storm|There is a storm coming]!" <called> {friend}.
- First it was only one drop, on {hero}'s nose. Then there were {number}. Then there was {a_boom}, and the rain
  [came down in buckets|poured].
- "Why has the {bird} stopped singing?" asked {hero}. The answer was a flash and {a_boom}. {Insects} vanished, and
  the trees began to [bend|groan].

?70
- "[Run|Quick|Come on]!" <called> {hero}. They [ran|raced|hurried|dashed|rushed|sprinted] as fast as they could,
  [hand in hand|with {his} {garment} over their heads|splashing through puddles].
- {friend} was <scared>. "[Take my {hand}|I know a place|Stay close to me]," said {hero}, and they ran.

- They found [an old barn|an empty hut|an old mill] and [slipped in|pushed the door open]. Inside it was
  [dark|dusty|dry], and there was {a_curio}.
- At last they came to [a shed|an old barn|a cottage that stood empty], and there they sat, next to {a_curio}, and
  [shivered|dripped|listened].
- There was [a little house|an old mill] by the path. They crept in and shut the door. The only thing in it was
  {a_curio}, [covered with cobwebs|and nobody knew who had left it there].

/

?65
- Outside it went {boom}. [The roof shook.|The whole world seemed to shake.] {friend} [began to cry|hid {fhis}
  face].
- The wind howled like {a_far_animal}. "[What if it never stops|Will they find us]?" <whispered> {friend}.
- Thunder [rolled|growled] over the hills, and the rain [drummed on the roof|ran down the walls].

- "Let us tell a story," said {hero}. "Once upon a time there was {a_curio}, and it belonged to {a_fabled}." [It was
  a long story|And the story went on and on], with {a_fabled2} in it, and [soon they forgot to be <scared>|{friend}
  even <laughed>].
- {hero} was <scared> too, but {he} did not show it. {He} [sang every song {he} knew|taught {friend} to count the
  seconds|made faces], and {he} shared {his} last {sweets}.
- They [wrapped themselves in an old {garment}|sat back to back] and took turns: one story about {book}, and one
  about {a_fabled}. All the while the {curio} stood there [like a friend|and listened].

?50
- Then there was {a_hush} at the door. It was only {a_beast}, wet and shivering, and they [let it in|made room for
  it|dried it with {a_garment}].
- A drop fell on the {curio}, then another. They pushed it to a dry place, [for somebody must have loved it
  once|because one should be kind to old things].

?85
- After <while>, it grew quiet. {hero} opened the door. [Everything was shining|The air smelled of {flowers}], and
  over {village} stood a rainbow.
- Bit by bit the thunder went away. The sun came out, and [every leaf glittered|{a_bird} began to sing again|there
  was a rainbow from one end of the sky to the other].

/

?75
- "There you are!" [called|cried] {kin}, who [had been looking for them everywhere|came along the road with a
  lantern]. {Khe} hugged them both and [wrapped them in {look_s} blankets|carried {friend} home].
- They <went> home over the wet grass. {kin} stood at the door with [{soup}|{drink}] and dry things. "I was so
  worried," {khe} said.

?80
- "[We were not afraid|It was an adventure]," said {hero}. {friend} [looked at {him}|winked]. "[Only a little|Only
  at the beginning]," {fhe} said.
- Later they [found out|learned from {elder}] that the {curio} had belonged to {a_trade}, and {hero} [visits it|goes
  there] on every {weather} {day}.
- That night, in {his} warm bed, {hero} listened to the last drops. [It was a good sound now.|{He} was not <scared>
  at all.]
- Ever since, when it thunders, {hero} [says|tells everybody], "[Come close, and I will tell you a story about
  {a_curio}|Even the worst storm gets <tired>]."
""",
    ),
    "newcomer": (
        "child",
        "land",
        """
@intro

/

- One {weather} {day}, a new {fkind} came to the school. "This is {friend}," said {teacher}. "{Fhe} comes from
  {land}."
- In the [house across the street|<house> house on the corner|house next door] there was a new family. They had come
  all the way from {land}, with {number} boxes and {a_curio}. One of them was {a_fkind} named {friend}.
- There was somebody {hero} had never seen before, {a_fkind} in {a_look_c} {garment}, all alone {at}. [{Fhis} name
  was {friend}, and someone said that {fhe} came from {land}.|It was {friend}, and {fhe} had just moved there from
  {land}.]

?80
- {friend} did not [say much|say a word]. At noon {fhe} sat alone [under a tree|by the wall|on the steps] with
  {fhis} {trinkets}.
- Nobody played with {fhim}. [Some children whispered.|Nobody knew what to say.] {friend} looked at the floor and
  was <sad>.
- {friend} [knew only a few words|spoke very softly], and when the others played {game}, {fhe} only watched.

- "I think {friend} is lonely," {hero} said to {kin} that evening. "[Then what could you do|And what does a lonely
  {fkind} need]?" <asked> {kin}.
- {hero} remembered {his} own first day, and how [big|loud|strange] everything had been.
- {hero} wanted to go over, but {he} was [shy|a little <scared>]. What if {friend} did not like {him}?

/

- The next day {hero} took {his} [lunch|{sweets}|{trinkets}] and sat down next to {fhim}. "[Is this seat free|Do you
  want half|May I sit here]?" {he} asked.
- So {hero} <went> over and held out {a_look} {thing}. {He} did not know the right words, but {he} [smiled|showed
  how it worked]. Then {he} let {fhim} try it.
- "Do you want to play {game}?" asked {hero}. {friend} [did not understand|shook {fhis} head]. So {hero} [drew it in
  the sand|showed it with {his} hands|tried it in another way].

?75
- {friend} looked up. Slowly, {fhe} [began to smile|nodded|moved over]. Then {fhe} took {trinkets} out of {fhis}
  bag. "[From {land}|My grandmother gave me these]," {fhe} said.
- {friend} [thought for a moment|looked at {him}]. "In {land}," {fhe} said slowly, "we [play with {trinkets}|have a
  game with {trinkets}|sit like this]." And {fhe} showed {him}.
- At first {friend} said nothing. Then {fhe} laughed, and it was [a wonderful laugh|like {a_bird} singing|so funny
  that {hero} laughed too].

?60
- {friend} taught {him} a song from {land}, and {hero} taught {fhim} [the names of the {flowers}|[how to whistle|how
  to skip stones|how to play {game2}]|ten new words].
- They traded: {hero} gave {fhim} one of {his} {sweets}, and {friend} gave {him} [{a_fruit_one}|something with
  {spice} in it]. [It tasted strange and good.|Neither had ever tasted that before.]
- {friend} could [do a trick that nobody knew|draw {a_far_animal} with one line|play the {instrument}]. Soon a whole
  crowd stood around them.

/

- On {day}, {hero} [was invited|went] to {friend}'s house. There was {soup}, there were {number} cousins, and on the
  wall hung {a_curio} [from {land}|that {hero} liked at once].
- After that, they were always together, {at} and on the way home, [playing {game}|talking about {book}|looking for
  {trinkets}].
- The others came closer. "[Can we play too|What are you doing]?" they asked. Before long everybody was playing
  {game}, and {friend} was in the middle.

- "On the first day I wanted to go home," said {friend}. "[And now|And today]?" asked {hero}. "[Now I am home|Now I
  have you]," said {friend}.
- "How do you say friend in {land}?" asked {hero}. {friend} told {him}, and {hero} said it <twice>, until [it
  sounded right|they both <laughed>].
- {hero} was <glad>. It had taken only one [small word|smile|step], and [it was the best thing {he} had done all
  year|now the world was bigger than before].
- When another new child came, it was {friend} who [got up first|went over], and {hero} went along.
""",
    ),
    "stranger": (
        "rambler",
        "beast",
        """
@intro

- Behind the house began the forest, and [every night|for days] {hero} heard {a_sound} from there. "[Something lives
  in there|It must be {a_far_animal}|It is a monster]," said {friend}.
- One {weather} {daytime}, {hero} was {at} when {he} saw two eyes {spot}. {He} was <scared>, and {he} ran home.
- Everybody said that something <big> and wild lived near the old bridge. "[It has teeth like {a_tool}|It is bigger
  than {a_vehicle}|It has eyes like lamps]," <said> {friend}.

- But {hero} was curious. {He} [took|packed] {fruit} and a lantern and [crept|tiptoed|walked|stole] back [the next
  day|in the evening|all alone|with a beating heart].
- "I want to know what it is," said {hero}. The next day {he} left some {fruit} {spot} and [waited|hid behind
  {a_tree}].
- {hero} lay awake and thought about it. In the morning {he} filled {a_garment} with {fruit} and <went> to see.

- There was a rustle, and out came [only |]{a_beast}. It was <small>, and it [limped|trembled|had {a_look_c} leaf on
  its head].
- Something moved. {hero} held {his} breath. And then, {spot2}, {he} saw it: {a_beast}, [no monster at all|blinking
  in the light|with a burr behind one ear|just as frightened as {he} was].

/

- "[Please do not shout|Do not be afraid of me|Good evening]," said the {beast}. "[You talk|You can talk]!" <called>
  {hero}. "[Only to those who listen|Now and then|When it is {weather}]," said the {beast}.
- "[You are so loud, you people|I thought that you were the monster]," it said <softly>. {hero} [laughed|sat down in
  surprise]. "[I am only {hero}|We thought the same of you]," {he} said.
- The {beast} did not speak, of course. But it [came closer|looked at {him}|sniffed the {fruit}], and its eyes said
  please.

?65
- They shared the {fruit}, [one for you and one for me|down to the last seed], and {hero} talked about {kin}, about
  {game}, and about {book}.
- {hero} gave it {fruit}, and the {beast} showed {him} [where the {flowers} grow|a path that nobody knew|a hole full
  of {trinkets}].
- "My name is {pet_name2}," or something like that, it seemed to say. From then on {hero} came every {day} with
  {fruit}.

?40
- "Where do you go all the time?" asked {kin}. "To a friend," said {hero}, [and that was true|and {kin} asked no
  more].
- {He} told nobody about it, not even {friend}, for [it was a secret with whiskers|some secrets are too good to
  tell].

- Then, [one evening|one day|on {day}], {hero} lost {his} way in the [fog|rain|dark]. {He} called and called. {He}
  was <scared>. And who came [out of the bushes|along the path]? The {beast}! It [ran ahead|pulled at {his}
  {garment}|looked back at every turn] and led {him} home.
- One day {friend} [fell into a ditch|got stuck in the brambles|lost {fhis} shoe in the bog], far from any house.
  {hero} did not know what to do. But the {beast} [ran for help|showed them a way out|fetched {kin} by the sleeve].
- Then {kin} lost {khis} [ring|keys|spectacles] {at}. They searched for <while>. [In the evening|At dusk|Just before
  bedtime|The next morning] there was a [scratch|soft {hush}|little noise] at the door. There sat the {beast}, and
  in front of it [lay what was lost|something shone].

/

?65
- "So that is your monster," said {kin}, and {khe} <laughed>. {Khe} put a bowl of [{sweets}|{fruit}|milk] by the
  door, and it was empty in the morning.
- "I was <scared> of that?" said {friend}. "[It is only {a_beast}|It is nicer than I am]."
- {hero} hugged the {beast}. "<thanks>," {he} said. [It sneezed.|It smelled of moss and {spice}.]

- After that, nobody in {village} said monster any more. They said, "[Good evening, {beast}|There goes {hero}'s
  friend]."
- {hero} learned that [a stranger is a friend you have not met yet|most monsters are only shy|one should look twice
  before running away].
- And if you go there on {a_weather} {daytime}, you may see them both, the {kind} and the {beast}, [sharing
  {fruit}|looking at {sight}|listening to the {bird}].
""",
    ),
    "mystery": (
        "any",
        "sweets",
        """
@intro

- One {weather} morning, {kin} [counted|looked at] the {sweets} on the kitchen shelf. "That is strange," {khe} said.
  "Yesterday there were {plenty}, and now there are only {few}."
- Something odd was going on[ in {village}|]. Every morning some {sweets} were missing[ from {kin}'s kitchen|].
- "Who has been at the {sweets}?" asked {kin} on {day}. {hero} had not, and neither had [the {pet}|{elder}].

?80
- "I will find the thief," said {hero}, and {he} put on {a_garment} like a real detective.
- "This is a case for {hero}," {he} said to {pal}, "and for you."
- {hero} took [a magnifying glass|a candle|a ruler|a notebook] and looked for [clues|tracks|footprints].

?75
- On the floor {he} found [three|some] crumbs and [{a_look_c} thread|{a_bird} feather|a bit of {cloth}]. "Aha!" said
  {hero}.
- There were [small|muddy|funny] footprints [on the windowsill|under the table], and beside them lay
  {a_trinket_one}. What did that mean?

?65
- First {he} asked {elder}. "[I only eat {soup}|I was asleep|I have no teeth for {sweets}]," <answered> {elder}. So
  it could not be {ehim}.
- {He} asked {pal}, and {friend} [was <cross>|turned red]. "I would have taken all of them," {fhe} said. That was
  true.
- Was it {a_trade}? Was it {friend}? Was it {a_bird}? {hero} wrote all the names on a list and crossed them out, one
  by one.

/

- That night {hero} [hid behind the curtain|crept under the table|sat in the dark] and waited. The clock struck
  {hour}. [{His} eyes almost fell shut.|Nothing happened for <while>.]
- So they made a plan. {hero} [tied a bell to|put flour around] the plate of {sweets}, and then {he} and {his}
  friend {pal} [hid|lay down under the table].
- When it was dark, {hero} took a candle and sat down beside {a_curio}. {He} had to pinch {himself} to stay awake.

- Then there was {a_hush}, as soft as could be. Something <small> [climbed through the window|came out of a hole in
  the wall|slid under the door].
- All at once the {sweets} began to move! {hero} [held {his} breath|rubbed {his} eyes].
- At midnight something went {sound}. "[Now|Stop, thief]!" <cried> {hero}, and {he} [lit the lamp|jumped up].

- It was {a_thief}, with {few} hungry little ones behind it, and it had crumbs [on its nose|in its whiskers].
- In the light sat {a_thief}. It held one of the {sweets} [in its paws|as tight as a treasure] and was as
  <surprised> as {hero}.

/

?75
- {hero} could not be <cross>. "[You only had to ask|You must be hungry]," {he} said <softly>, and {he} [broke one
  of the {sweets} in two|pushed the plate closer].
- "[So you are the thief|Is it for your family]?" asked {hero}. The {thief} [looked at the floor|nodded, or so it
  seemed|put down the crumb].
- {kin} came in {khis} nightshirt. "[Well, well|So that is our thief]," {khe} said, [and {khe} began to laugh|but
  {khe} did not look <cross> at all].

?65
- After that, they put out a plate every night, with {greens} and just one of the {sweets}[, and nothing was ever
  missing again|].
- The next morning there was [a nut|{a_trinket_one}|a shiny pebble] on the empty plate. "That is the payment," said
  {kin}.
- {hero} wrote in {his} notebook: the case of the {sweets} is solved. [The thief was hungry.|The thief is now a
  friend.]

/

- "A good detective finds the thief," said {kin}, "and a [great|wise|kind] one finds out why." {hero} was {glad}.
- {hero}'s friend {pal} still says that it must have been {a_far_animal}, but {hero} [knows better|only smiles].
- And when {hero} hears a little {hush} at night, {he} turns over and thinks, [enjoy your meal|good night,
  thief|that is only my friend].
""",
    ),
    "sleepless": (
        "any",
        "dream",
        """
- It was late, and {hero} could not sleep. [The moon was too bright|The bed was too warm|{His} head was too full],
  and {kin} [snored|had already blown out the lamp].
- {hero} lay in bed with {his} eyes open. It was a [quiet|long|dark|moonlit] night in {month}, and [a clock
  ticked|the wind went around the house|{a_bird} called outside].
- "I am not [tired|sleepy] [at all|one bit]," said {hero}, when {kin} came to [close the curtains|tuck {him} in|take
  away {his} {trinkets}].
- {hero} was {a_nature} {kind}, and [going to bed was not what {he} liked best|bedtime was the one thing {he} did
  not like].

?75
- {He} turned to the left. {He} turned to the right. {He} [kicked off the blanket|put the pillow over {his}
  head|stood {his} pillow on end].
- {He} counted {herd}: one, two, three, {number}. But [one of them began to sing|they all wanted a drink of water],
  and {he} was wide awake again.
- First {he} was too hot, and then {he} was too cold, and then {he} [heard {a_sound}|was thirsty|thought of
  {a_far_animal}].

- "{kin}," {he} called, "I cannot sleep." {kin} came in {khis} [slippers|nightshirt|socks|robe] and sat down on the
  bed. "[What is it|What are you thinking about]?" {khe} asked.
- So {he} got up and <went> <carefully> to {kin}, who was [reading|mending {a_garment}|drinking {drink}]. "[You
  again|What, still awake]?" {khe} said.
- A light came through the door. It was {kin}. "[I heard you turning around,|Are you awake too?|Can you not sleep?]"
  {khe} [whispered|said].

?75
- "[I keep thinking about {day}|I am afraid of {fabled_folk}|There is {a_hush} in the wall|My legs want to run],"
  said {hero}.
- "There is so much to think about," said {hero}. "Do {herd} sleep? Does {a_fish} close its eyes? [Who puts the sun
  to bed?|And who wakes up the {bird}?]"

/

?75
- {kin} brought {him} a cup of {drink}[ with honey in it|]. It [helped a little|was warm and sweet], but not enough.
- {kin} opened the window. "[Listen|Be very quiet]," {khe} said. Far away {a_bird} called, and {a_vehicle} [hummed
  along the road|went by]. "They are all on the way to bed."
- {kin} told {him} a story about {book}. It was [a good one|long], and {hero} asked {number} questions.

- "Shall we say good night to everything?" asked {kin}. "Good night, {curio}. Good night, {garment}. Good night,
  {number} {trinkets}." "Good night, {bird}," said {hero}[, and {he} yawned|].
- "Close your eyes," said {kin}, "and walk through {village} in your mind. There is {elder}, asleep. There is the
  {farm_animal}, asleep. There is {a_trade}, [asleep in {a_garment}|who is yawning]."
- "I know a trick," said {kin}. "You must try to stay awake. [Do not close your eyes, whatever happens|Whoever falls
  asleep first loses]." {hero} [tried very hard|opened {his} eyes wide].

?60
- "And {friend}?" asked {hero}. "Asleep," said {kin}. "And the {beast}?" "Asleep too." "And you?" "[Almost|Very
  soon]," said {kin}.
- Outside it began to [rain|snow] very softly, and the {tree} [whispered|rocked to and fro].
- {His} legs grew heavy, then {his} {hands}, and then {his} eyes. [The {curio} in the corner looked like a
  friend.|The shadows were soft and kind.]

- "I am still not [tired|sleepy|a bit tired]," said {hero}, but [the last word was only a breath|{his} eyes were
  already closed].
- {hero} wanted to ask one more thing, about {a_far_animal}, but [{he} forgot what it was|the words came out as a
  yawn].

/

- And then {hero} dreamed of {dream}, and of {dream2} too.
- Soon {he} was asleep. {He} dreamed of {dream}, and [{kin} was in it|it smelled of {spice}|{a_bird} flew ahead].
- {hero} slept, and it was a dream about {dream} [that came in on tiptoe|that was waiting behind {his} eyes].

?85
- {kin} [kissed {him}|closed the door softly|pulled up the {look_s} blanket]. "Sleep well, {hero}," {khe}
  <whispered>.
- In the morning {kin} was still [sitting|lying] there, fast asleep, [with {khis} mouth open|with {a_look_s} blanket
  over {khis} knees]. {hero} <laughed>.
- "How was your night?" asked {kin} in the morning. "[I stayed awake all night|I won]," said {hero}. {kin} only
  smiled.
""",
    ),
    "trade": (
        "any",
        "things",
        """
@intro

- {He} [wanted|wished for] {a_look} {thing}, like the one that {elder} had. But {he} had no money. All {he} had was
  {a_trinket_one}.
- One {weather} {daytime}, {hero} found {a_trinket_one} {spot}. It was not much, but {he} [had a plan|put it in
  {his} pocket]. What {he} really wanted was {a_look} {thing}.
- "I would give anything for {a_look} {thing}," said {hero}. "[What do you have|And what can you give]?" asked
  {kin}. {hero} looked in {his} pocket. There was only {a_trinket_one}.

- {He} <went> along the road and met {a_trade} with {a_tool}. "[What a fine|I have been looking for that kind of]
  {trinket_one}!" <said> the {trade}. "Will you trade it for my {tool}?" "[Gladly|With pleasure|All right]," said
  {hero}.
- On the bridge stood {a_trade}, [sighing|with a long face]. "I need {a_trinket_one}," said the {trade}, "and I have
  only this {tool}." So {hero} gave away the {trinket_one} and got {a_tool}.
- First {he} met {a_trade}, who [looked at the {trinket_one}|needed {a_trinket_one}] and offered {him} {a_tool} for
  it. "Done," said {hero}.

/

- A little farther on, {pal} was [hard at work|grumbling over a broken door|putting up a shed]. "If only I had
  {a_tool}," said {friend}. {hero} lent {a_hand}, and in the end {he} got {a_garment2} for the {tool}.
- Then {he} saw {pal}. "I will give you my {garment2} for that {tool}," said {friend}. {hero} thought about it. The
  {garment2} was {look_c} and [warm|hardly worn]. "All right," {he} said.
- {pal} came along in {a_look_c} {garment2}. {Fhe} [wanted|needed] the {tool} so much that {fhe} took off the
  {garment2} on the spot. "Take it," {fhe} said, "and give me the {tool}."

?40
- So now {he} had {a_garment2}. [It was too big for {him}.|It smelled of {spice}.] "[What a funny way to shop|This
  is going well|I am getting closer]," {hero} thought.
- It began to rain, and {hero} was glad of the {garment2}. [{A_bird} laughed at {him}.|But {he} did not forget what
  {he} wanted.]
@birds

- At the [corner|market|well] sat {a_trade2}, [shivering|wet to the skin]. {hero} [felt sorry|did not think twice]
  and gave away the {garment2}. "[What do you want for it|What do I owe you]?" asked the {trade2}. "Nothing,"
  <answered> {hero}. But the {trade2} put {a_cake} into {his} {hands}.
- Then came {a_trade2} with {a_cake} [on a tray|in a basket]. "What a fine {garment2}," said the {trade2}. "Would
  you take my {cake} for it?" {hero} [sniffed|looked]. {He} would.

/

- With the {cake} under {his} arm, {he} came to {elder}, who [had not eaten all day|was sitting in front of an empty
  plate]. "[Is that {a_cake}|What smells so good]?" asked {elder}. "I would give my {thing} for a piece of it!" And
  so {hero} got the {thing}.
- {elder} stood at the gate. "Today is my birthday," {ehe} said, "and nobody has brought me {a_cake}." {hero}
  [smiled|held it out]. They [shared it|ate it together], and when the last crumb was gone, {elder} gave {him} the
  {thing}.
- At {elder}'s house {he} knocked. "Would you like {a_cake}?" {he} asked. {elder} loved cake. [In no time|Before
  {he} could ask], the {cake} was on the table and the {thing} in {hero}'s {hands}.

?75
- At home {he} {played}. "[How did you pay for it|What did you pay for it with|However did you pay for that]?" asked
  {kin}. "With {a_trinket_one}," said {hero}, and {he} told the whole story: {trinket_one}, {tool}, {garment2},
  {cake}, {thing}.
- {hero} <laughed>. From {a_trinket_one} to {a_tool}, from {a_tool} to {a_garment2}, from {a_garment2} to {a_cake},
  and from {a_cake} to {a_thing}!

?55
- "[A good trade makes two people glad|Everybody has something that somebody needs]," <said> {kin}.
- The {thing} was {look}, just as {he} had wished, and {he} {played}. {He} was {glad}.
- That evening {friend} came by to [play|ask how it had gone], and {hero} [let {fhim} {play} too|told {fhim}
  everything].
- And the {trinket_one}? [It is still with the {trade}.|Somebody may have traded it for {a_curio} by now.]
""",
    ),
    "errand": (
        "child",
        "fruit",
        """
@intro

- "Please go to the market," said {kin} one {weather} {daytime}. "We need {fruit}, {greens}, and {spice}. [Can you
  remember that?|Say it after me.|Will you think of it?]" "{Fruit}, {greens}, and {spice}," said {hero}.
- {elder} was ill, and {kin} wanted to cook for {ehim}. "[Run|Go] to the shop and bring me {fruit}, {greens}, and
  {spice}," {khe} told {hero}[, and {khe} gave {him} {number} coins|].
- It was the first time that {hero} was allowed to go shopping alone. "Three things," said {kin}: "{fruit},
  {greens}, and {spice}. [Do not forget|Do not talk to {fabled_folk} on the way]."

?65
- {hero} took {a_look_c} basket and [set|ran|went|hurried|marched|skipped] off. "{Fruit}, {greens}, {spice}," {he}
  [sang|said] with every step.
- "{Fruit} and {greens} and {spice}," {hero} [sang|hummed|muttered], and {he} swung the basket.

?70
@way

- Then {he} met {friend}, who wanted to play {game}. "[Only one round," said {hero}. It was more than one.|Just for
  a minute," said {hero}. It was a long minute.] When {he} walked on, [one of the three things had slipped {his}
  mind|{his} head was empty].
- Then {a_pet} jumped out at {him}. {hero} [fell over|dropped the basket], and when {he} got up, [the list had
  fallen out of {his} head|one of the three things was gone from {his} mind].
- At the corner {a_trade} was playing the {instrument}. It was a lovely tune, and soon {hero} was humming it. But
  what had {he} been humming before?

/

- At the market {he} stood still. "{Greens}," {he} said, "and {spice}, and then?" [It was gone.|{He} could not think
  of it.]
- "What can I do for you?" asked {keeper}, the shopkeeper. "{Greens} and {spice}," said {hero}, "and one thing more.
  But what?"
- {hero} bought {greens}. {He} bought {spice}. But there had been three things. What was the third?

?60
- "Was it {sweets}?" asked the shopkeeper. {hero} would have liked that, but no. "Was it {trinkets}?" No. "Was it
  {fruit2}?" [Almost.|It sounded a little like it.]
- {He} walked past {trinkets}, past {sweets}, and past {a_curio}. None of those was right. {hero} was <sad>.
- "[{Fruit2}|{Sweets}]?" {he} asked {himself}. "No. {Trinkets}? No, nobody can eat those."

- Then {he} saw {a_bird} on a stall, [pecking at something|with juice on its beak]. "{Fruit}!" <cried> {hero}. "That
  was it!"
- {hero} shut {his} eyes and began to walk on the spot, and {his} feet remembered. "{Fruit}, {greens}, {spice}!"
  {he} <cried>.
- In the end {he} thought of {kin} at the kitchen table. What had {khe} said before the {greens}? "{Fruit}!" {he}
  <cried>. "Of course!"

/

- Proudly {he} carried everything home. "{Fruit}, {greens}, and {spice}," {he} said, and {he} put them on the table,
  one after the other.
- {kin} looked into the basket. "{Fruit}," {khe} counted, "{greens}, and {spice}. [You remembered all three|Nothing
  is missing]!"

?75
- "[Was it hard|Did anything happen]?" asked {kin}. "[Not at all|Only the middle part]," said {hero}, and {he}
  [winked at the {pet}|<laughed>].
- {hero} was {glad}. For supper there was {soup}, and [nobody had ever tasted a better one|{hero} got the biggest
  bowl].
- "Next time I will write it down," said {hero}. "[That is a good idea|Or sing louder]," said {kin}.
- The rest of the money, {few} coins, {hero} was allowed to keep. {He} knew at once what {he} would buy:
  {a_trinket_one}.

?30
@night
""",
    ),
    "treasure": (
        "any",
        "things",
        """
@intro

- On {his} birthday, {hero} [woke up and|looked everywhere, but {he}] found no present. There was only a note
  [beside {his} cup|on the table|under {his} pillow], in {kin}'s handwriting.
- One {weather} {daytime}, {hero} found an old piece of paper in {a_curio}. [It was a map|There were words on it],
  drawn in {look_c} ink.
- "Somebody has left this for you," said {kin}, and {khe} gave {hero} {a_look_c} envelope. [{Khe} smiled in a
  strange way.|{Khe} knew nothing about it, {khe} said.]

- "Go {to} and look {spot}," it said.
- It said: "If you want a treasure, look {spot}. You will have to go {to}."
- On it somebody had written: "The treasure is {at}. Begin {spot}."

- {hero} [called|ran to fetch] {pal}, and the two of them [set|ran|went|hurried|marched|skipped] off, with a spade
  and {number} {sweets}.
- "Come with me!" {hero} called to {pal}. "[We are treasure hunters|This is an adventure]!" {friend} [grabbed {fhis}
  hat and came|took a spade and came|was already at the door].

?60
@way

/

- {He} <looked> {spot} <carefully>. There was no treasure, but there was [another|a second] note, [tied to
  {a_trinket_one}|rolled up in a bottle|under a stone|as {look_c} as the first]. "[Not here|Very good]," it said.
  "Take {number} steps and look {spot2}."
- They <looked> {spot}. At first they saw only {litter}. Then {friend} [gave a shout|pointed]. A second note! "[You
  are clever|Getting warmer]," it said. "Now look {spot2}."

?60
- They took {number} [big|small] steps. {friend} counted wrong, [and they had to start again|and they ended up in a
  puddle].
- "What if somebody was here before us?" <asked> {friend}. "[Then there would be footprints|We shall see]," said
  {hero}.
- {A_bird} [followed them|hopped ahead], as if it knew the way. They were <tired>, but nobody wanted to stop.

?40
- In the middle of it all, {friend} got <cross>. "[It is all a joke|There is no treasure]," {fhe} said. {hero} gave
  {fhim} one of the {sweets}, [and that helped|and on they went].
- They passed {sight}, but they had no time for that now.

- {Spot2} the ground was soft. They dug [and dug|for <while>|with all their might], until something went {clonk}. It
  was a [box|chest|tin].
- And {spot2}, there it was: [a wooden|a rusty|{a_look_c}] box, tied with string. {hero}'s {hands} shook.

/

- {hero} lifted the lid. Inside lay {a_look} {thing}! "<yay>!" <cried> {hero}.
- Inside was {a_look} {thing}, and under it a last note: "[For the best finder in {village}|For {hero}, with love]."
- "[Open it,|Go on,|Quick,]" <whispered> {friend}. {hero} opened it. There was {a_look} {thing}, wrapped in {cloth}.

?65
- At once {he} {played}. Then it was {friend}'s turn[, because treasure hunters share everything|].
- {hero} {played}, and {friend} got the [{trinkets}|box|string], and {fhe} was just as <glad>.

?75
- When they came home, {kin} was [baking {a_cake}|reading|sitting on the steps], with {look_c} ink on {khis}
  [fingers|nose]. "So it was you!" <cried> {hero}.
- "Who do you think wrote the notes?" asked {friend}. {hero} thought of {kin}'s [handwriting|strange smile]. "[A
  pirate, of course|I have an idea]," {he} said, and {he} <laughed>.
- {hero} never found out who had buried the {thing}. But {elder} [winked at {him}|had earth on {ehis} shoes] [the
  next morning|when {he} told the story].
- "[The best part was the looking|Half the treasure was finding it]," said {hero} that night, and the {thing} lay
  beside {him}.
""",
    ),
}
