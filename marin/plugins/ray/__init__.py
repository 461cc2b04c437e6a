"""Work on a Ray: clusters, pools of warm workers, jobs, and trainings that outlive the death of a worker."""
