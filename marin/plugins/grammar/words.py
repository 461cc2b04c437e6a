"""The stems of the grammar, by hand, from frequent to rare within each group. All inflected forms follow from them.

A group is a selection class: what can bake is a person, what can be baked is food. So sentences stay sensible, and the
pairing of verbs with the right kinds of nouns is one more thing that a model can learn.
"""

from __future__ import annotations


def stems(text: str) -> tuple[str, ...]:
    """The words of ``text``, each once."""
    return tuple(dict.fromkeys(text.split()))


WOMEN = stems("""
    Clara Anna Mary Alice Ruth Emma Nora Lucy Rose Helen Sarah Julia Ellen Grace Martha Irene Laura Agnes Edith Hazel
    Ivy Flora Marion Olive Paula Rita Sylvia Vera Winnie Ada Bella Cora Daisy Eva Frida Greta
""")

MEN = stems("""
    Thomas Peter John Simon Paul Henry Oliver Martin Jack Walter David Robert Arthur Frank George Hugo Isaac Leo Oscar
    Philip Ralph Samuel Tobias Victor William Adam Bruno Conrad Daniel Edmund Felix Gilbert Harold Ivan Jasper Karl
""")

# Somebody's work or standing: a man or a woman, as the story has it.
ROLES = stems("""
    baker farmer teacher doctor sailor singer gardener writer painter soldier driver student carpenter nurse lawyer
    hunter merchant cook weaver dancer miller potter tailor shepherd guard judge artist poet musician librarian builder
    blacksmith clerk banker engineer pilot barber butcher grocer jeweller printer sculptor surgeon watchmaker traveller
    neighbour stranger guest visitor customer lodger pupil apprentice captain mayor beekeeper postmaster innkeeper
    shopkeeper locksmith goldsmith scientist inventor historian actor dentist chemist plumber porter miner juggler
    messenger translator astronomer cobbler fiddler drummer
""")

FEMALE = stems("""
    woman girl mother sister daughter aunt queen wife lady grandmother niece princess actress waitress widow duchess
    countess governess seamstress policewoman
""")

MALE = stems("""
    man boy father brother son uncle king fisherman grandfather nephew prince waiter policeman duke
    bridegroom monk fireman milkman
""")

GROUPS = stems("child friend villager cousin parent twin scholar worker tourist passenger hero thief")

ANIMALS = stems("""
    dog cat horse bird cow goat mouse fox sheep duck wolf goose rabbit hen pig donkey deer owl crow swan bee frog
    squirrel hedgehog lamb calf pony ox kitten puppy sparrow turtle badger beaver otter raven pigeon spider butterfly
    lizard snake parrot rooster mole bear heron
""")

THINGS = stems("""
    box key letter book lamp basket bottle lantern coat map ring clock chair hat knife cup bag coin candle mirror rope
    blanket ladder bucket umbrella picture violin hammer drum scarf kettle plate spoon boot shirt chain bell brush
    needle ribbon envelope notebook pencil pillow carpet trumpet flute guitar axe saw nail barrel crate jar vase tray
    comb button glove belt purse wallet ticket parcel diary newspaper telescope compass anchor oar net sail flag kite
    doll puzzle toy whistle medal crown sword shield helmet necklace bracelet earring statue painting photograph
    curtain cushion cradle suitcase trunk wheel saddle harness broom shovel rake spade
""")

FOODS = stems("""
    apple egg cake potato pie pear cherry carrot onion sandwich loaf biscuit tomato plum pancake sausage mushroom orange
    lemon pudding nut peach turnip cabbage cucumber melon olive bun dumpling strawberry blackberry radish pumpkin
""")

# A place and the preposition that goes with being there.
PLACES_IN = stems("""
    house garden kitchen village forest city library school shop market valley barn church castle field park office
    tower museum hospital cellar attic orchard theatre palace stable cottage courtyard workshop bakery meadow cave
    desert cathedral prison factory greenhouse laboratory chapel hall
""")

PLACES_AT = stems("station inn harbour mill well gate airport hotel lighthouse port fountain")

PLACES_ON = stems("hill bridge island beach farm road boat ship roof mountain balcony platform square ferry cliff")

# Things that stand somewhere and take part in sentences of their own.
FIXTURES = stems("""
    door window tree wall table fence river bed shelf path lake stone flower bush cupboard leaf cloud star drawer stove
    bench hedge gatepost chimney staircase pond stream rock branch root
""")

# What is told, known, forgotten.
IDEAS = stems("""
    story secret song plan answer question idea dream problem rumour promise joke name lesson poem riddle reason mistake
    truth rule language legend warning wish number proverb
""")

INTRANSITIVE = stems("""
    sleep laugh smile wait work cry sing dance rest wake shout cough sigh yawn whistle shiver hesitate pause sneeze
    tremble weep giggle snore retire blush faint mutter grumble kneel dream
""")

MOTION = stems("""
    walk run go come travel hurry wander climb march creep ride swim jump stroll race crawl leap return drive sail
    stumble limp trot fly gallop
""")

TAKES_THING = stems("""
    find carry take hold lose buy keep hide bring make sell clean steal break throw drop paint repair choose
    want need borrow paint lift collect drag examine polish touch wrap push pull admire remember forget burn mend drop
    deliver order return hang own recognise shake kick wash weigh
""")

TAKES_FOOD = stems("eat cook like taste share cut peel boil bake fry slice pick swallow chew steal serve roast nibble")

TAKES_PERSON = stems("""
    see help know meet call love follow hear thank like find greet visit watch trust teach remember miss warn ask
    welcome invite admire forgive blame hug kiss recognise avoid surprise praise tease annoy please amuse
    comfort scold frighten rescue ignore interrupt protect imitate envy respect believe understand marry guide hire
    obey pity
""")

TAKES_ANIMAL = stems(
    "see feed follow watch chase find catch hear buy sell lead wash call brush train stroke frighten rescue tame"
)

TAKES_PLACE = stems("leave visit enter like reach know remember love explore describe admire search sweep")

TAKES_FIXTURE = stems("see touch paint watch notice clean describe climb repair measure admire reach")

TAKES_IDEA = stems(
    "know tell remember forget hear learn understand explain repeat love hate guess discover mention whisper teach"
)

REFLEXIVE = stems("""
    hurt see wash blame trust teach hide help praise know admire scold surprise forgive describe protect warn dress
    amuse introduce comfort criticise
""")

GIVING = stems("give show send bring lend offer sell hand pass throw promise")

THINKING = stems(
    "think know say believe hope hear remember notice feel understand guess claim suspect swear dream admit insist"
)

WISHING = stems("want try hope decide begin like need forget plan love promise learn refuse agree prefer choose manage")

SPEAKING = stems("say answer ask whisper shout reply call mutter murmur cry explain laugh")

THING_HAPPENS = stems("fall break shine vanish burn move roll crack sink disappear drop tremble fade rattle")

ANIMAL_DOES = stems("sleep run eat jump drink wait hide play rest wander swim yawn disappear listen tremble limp")

# Adjectives by what they describe.
OF_PEOPLE = stems("""
    old young happy kind tired clever rich poor sad strong brave quiet tall angry proud lonely honest hungry lazy gentle
    famous busy careful shy cheerful patient rude wise curious stubborn polite nervous generous friendly foolish greedy
    thin thirsty calm elderly modest jealous serious sleepy
""")

OF_ANIMALS = stems("""
    small black white brown old young hungry wild fast lazy grey big fat thirsty noisy clever tame fierce tired thin
    gentle spotted lame swift
""")

OF_THINGS = stems("""
    old small new heavy big red blue green black white broken empty beautiful yellow round long golden light strange
    wooden dirty cheap silver rusty brown tiny shiny expensive dusty ugly plain narrow useless smooth square ancient
    fragile grey thick thin precious curious ordinary
""")

OF_FOODS = stems("fresh sweet hot small big ripe cold delicious warm sour green red dry tasty salty bitter rotten soft")

OF_PLACES = stems(
    "old small quiet dark empty big beautiful cold busy new strange noisy famous narrow crowded lonely distant tidy"
)

OF_IDEAS = stems(
    "good old strange simple true long sad new bad clever difficult funny terrible wonderful short important famous"
)

# Those of the above that are compared.
COMPARED = stems(
    """
    old young happy kind rich poor strong brave tall quiet angry proud clever careful patient famous small big heavy long
    fast thin dirty cheap tiny shiny expensive beautiful strange cold dark narrow noisy fat lazy wise fresh sweet warm
    """
)

MANNERS = stems("""
    slow quick quiet happy careful sad soft sudden brave calm polite kind angry proud gentle patient loud bitter eager
    nervous cheerful honest silent warm cold clumsy secret wise swift bright
""")

NUMBERS = stems("two three four five six seven eight nine ten twelve twenty")

STATIVE = frozenset(
    stems(
        """
        know want need like love hate remember believe own understand hear see trust admire envy respect mean prefer
        recognise miss hope think forget feel suspect guess notice agree promise pity doubt
        """
    )
)

TIMES = (
    "in the morning",
    "in the evening",
    "at night",
    "every day",
    "at noon",
    "before breakfast",
    "after dinner",
    "on Sundays",
    "in winter",
    "in summer",
    "on market days",
    "at dawn",
)
