"""What a run made, in the shapes that other tools read. One file for each; the bytes come out of the store, hashed.

card             a model card and the chat template beside the exported folder
hub              that folder pushed to the Hugging Face Hub; a pinned revision pulled from it
envelope         statements of in-toto, signed by the log's key
"""
