"""What a run made, in the shapes that other tools read. One file for each; the bytes come out of the store, hashed.

dvc             a DVC remote and .dvc files
oci             an OCI image layout, as `oras` and `skopeo` copy it
card            a model card and the chat template beside the exported folder
hub             that folder pushed to the Hugging Face Hub; a pinned revision pulled from it
model_signing   an OpenSSF model signature over the exported model
"""
