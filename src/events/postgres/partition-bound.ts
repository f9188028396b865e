/**
 * The end of a range partition, from its catalogue row `c` (pg_class): the first value that it does not hold.
 */
export const PARTITION_END = `(regexp_match(pg_get_expr(c.relpartbound, c.oid),
  'TO \\(''(\\d+)''\\)'))[1]::bigint`;
