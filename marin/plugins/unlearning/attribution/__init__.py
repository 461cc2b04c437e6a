"""Attribution by leaving out: what the losses of a run would be without some of its documents, by training without them."""
