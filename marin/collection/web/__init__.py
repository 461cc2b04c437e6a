"""Documents from the web: readers of WARC, WET and HTML, and the steps and rules that pages go through."""
