/** The end of a range partition as its catalogue row `c` (pg_class) tells it: the first value that it does not hold. */
export const PARTITION_END = `(regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint`;
