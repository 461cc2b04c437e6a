"""`marin publish`: a run as static files that a stranger verifies."""

from __future__ import annotations

from pathlib import Path

import click

from ledger import open_storage
from marin.cli.output import print_json, say
from marin.cli.store.remote import remote_store
from marin.cli.store.transfer import DryRun, Jobs, Json, copied_artifacts
from marin.history.runs import load, resolve
from marin.recipe.units import human_size
from marin.record.root import open_root

File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("run")
@click.option(
    "--to", "dest", required=True, metavar="DEST", help="A folder, gs:// or s3://, which a web server serves."
)
@click.option("--stated", type=File, metavar="CARD.yaml", help="What only the provider can say, for the dossier.")
@click.option(
    "--signing-key", type=File, metavar="KEY.pem", help="Sign the model and its dossier, and publish both together."
)
@click.option("--address", default="", metavar="URL", help="Where it will be served: pages have it in their commands.")
@Jobs
@DryRun
@Json
def publish(
    run: str,
    dest: str,
    stated: Path | None,
    signing_key: Path | None,
    address: str,
    jobs: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Publish RUN as static files: log, what its verification needs of the store, dossier and report.

    What DEST has already is not sent, whichever run brought it; what broke off goes on when it is said again. Readers see
    the publication as it was, until the signed checkpoint of the log takes its place at the end. The whole log is
    published, with all that its events say of other runs, but of the store only what this run names.

    \b
    Examples:
      marin publish latest --to site/
      marin publish latest --to gs://bucket/site --stated model-card.yaml
      marin verify https://example.org/site/runs/RUN/ --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    # attestations and templates: not for --help
    from marin.plugins.sharing.pages.publish import needed_artifacts, publish_pages

    root = open_root()
    view = load(root.history(), resolve(root.history(), run))
    root.signer()  # says that there is none before anything is sent
    if address.startswith("http"):
        open_storage(
            address
        )  # refuses what the pages would tell strangers to give `marin verify`, and it does not take
    source, target = root.store(), remote_store(dest, readonly=False)
    digests = needed_artifacts(root, view, source)
    plan = copied_artifacts(source, target, digests, jobs=jobs, verb="publish", dry_run=True)
    if not as_json:
        say(f"{plan.blobs} files of the store, {human_size(plan.size)}, are sent; {plan.there} are there", err=True)
    if dry_run:
        if as_json:
            print_json({"run": view.run, "sent": plan.blobs, "bytes": plan.size, "there": plan.there, "page": None})
        return
    copied = copied_artifacts(source, target, digests, jobs=jobs, verb="publish", dry_run=False)
    done = publish_pages(root, view, open_storage(dest), card=stated, key=signing_key, address=address)
    if as_json:
        told = {"sent": copied.blobs, "bytes": copied.size, "there": copied.there}
        print_json({"run": view.run, **told, "page": done.page, "dossier": done.dossier, "log": done.size})
    else:
        where = address.rstrip("/") or "ADDRESS"
        say(
            f"{dest.rstrip('/')}/{done.page}",
            f"verify it: marin verify {where}/runs/{view.run}/ --vkey '{root.verifier}'",
        )
