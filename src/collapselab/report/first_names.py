"""First names of TinyStories, each of which is one token in many vocabularies: the paper has a table of such."""

FIRST_NAMES = frozenset({
    "Alice", "Amy", "Anna", "Annie", "Ben", "Benny", "Betty", "Bill", "Billy", "Bob", "Bobby", "Charlie", "Daisy",
    "Dan", "David", "Ella", "Emily", "Emma", "Eve", "Fred", "George", "Grace", "Jack", "James", "Jane", "Jenny", "Jill",
    "Jim", "Jimmy", "Joe", "Joey", "John", "Johnny", "Kate", "Katie", "Kim", "Kitty", "Leo", "Lila", "Lily", "Lisa",
    "Lola", "Lucy", "Mandy", "Maria", "Mark", "Mary", "Max", "Mia", "Mike", "Molly", "Nick", "Nina", "Peter", "Polly",
    "Rosie", "Ruby", "Sally", "Sam", "Sammy", "Sara", "Sarah", "Sophie", "Sue", "Susie", "Ted", "Tim", "Timmy", "Toby",
    "Tom", "Tommy", "Tony", "Will", "Zoe",
})  # fmt: skip
