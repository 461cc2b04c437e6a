"""From sources to a collection: phases, the tasks of workers, and the columns between them."""
