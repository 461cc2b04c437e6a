"""What a run made, in the shapes that other tools read. One file for each; the bytes come out of the store, hashed.

dvc              a DVC remote and .dvc files
oci              an OCI image layout, as `oras` and `skopeo` copy it
card             a model card and the chat template beside the exported folder
hub              that folder pushed to the Hugging Face Hub; a pinned revision pulled from it
model_signing    an OpenSSF model signature over the exported model
in_toto          attestations of steps and verdicts; in_toto_layout: steps as a layout and links, for in-toto's own verifier
rekor            the same attestations as requests to Sigstore's public log, under a key that the log vouches for
evaluation       recorded evaluations with their proofs, for who has the model alone
unlearning       a certificate of what the run has unlearned
babylm           a submission to the BabyLM challenge
mlperf/          a log in the form of MLPerf training, and all that a submission needs beside it
"""
