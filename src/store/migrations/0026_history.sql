-- What the server did over time. Rows are used again in a circle, so the table has a size that it never exceeds.
CREATE TABLE history (
    step_s     BIGINT NOT NULL,           -- how long one row stands for
    slot       BIGINT NOT NULL,           -- its place in the circle of that step
    at_us      BIGINT NOT NULL,           -- its begin
    running    BIGINT NOT NULL,           -- gauges: the mean
    paused     BIGINT NOT NULL,
    warm       BIGINT NOT NULL,
    creates    BIGINT NOT NULL,           -- counts within the step
    failures   BIGINT NOT NULL,
    p50_us     BIGINT NOT NULL,           -- of creates within the step; 0 = there were none
    p99_us     BIGINT NOT NULL,
    cpu_permille BIGINT NOT NULL,         -- of the host
    mem_used   BIGINT NOT NULL,
    mem_total  BIGINT NOT NULL,
    pool_used  BIGINT NOT NULL,
    pool_total BIGINT NOT NULL,
    disk_used  BIGINT NOT NULL,
    disk_total BIGINT NOT NULL,
    PRIMARY KEY (step_s, slot)
);
