-- Statistics before data, for the tables of consumers too (docs/decisions/0006). A fresh node plans the statements of trust and search on empty
-- tables: "community = 1 AND author = x" looks as selective by (community, at) as by (community, author, at), and the plan may
-- take either. An import of 20,000 events into a fresh node was seen to walk an index for 11 million rows. Tables that hold something have statistics of their own.
CREATE FUNCTION seed_consumer_statistics(target regclass, typical text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  is_used boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s)', target) INTO is_used;
  IF is_used THEN
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s %s', target, typical);
  EXECUTE format('ANALYZE %s', target);
  PERFORM empty_new_table(target);
END $$;

-- 2,000 contacts of 100 people with one another, over a month.
SELECT seed_consumer_statistics('trust_contacts', $$(community, kind, at, author, named, event_id, shared)
  SELECT 1, CASE WHEN n % 5 = 0 THEN 7 ELSE 1 END, 1700000000000 + n * 1200000::bigint, sha256((n % 100)::text::bytea),
    sha256((n % 97 + 1000)::text::bytea), sha256((n / 2)::text::bytea), 2 FROM generate_series(1, 2000) AS n$$);
SELECT seed_consumer_statistics('trust_authors', $$(community, first_seen_at, pubkey)
  SELECT 1, 1700000000000 + n * 1200000::bigint, sha256(n::text::bytea) FROM generate_series(1, 2000) AS n$$);
SELECT seed_consumer_statistics('trust_reports', $$(community, at, weight, reporter, subject, target_event, source, reason)
  SELECT 1, 1700000000000 + n * 1200000::bigint, 0.5, sha256((n % 100)::text::bytea), sha256((n % 97 + 1000)::text::bytea),
    sha256(n::text::bytea), sha256(n::text::bytea), 'spam' FROM generate_series(1, 2000) AS n$$);
SELECT seed_consumer_statistics('trust_scores', $$(community, claim, score, computed_at, changes_at, publish_at, rank, grounded, subject)
  SELECT 1, CASE WHEN n % 2 = 0 THEN 'report-based' ELSE 'communication-density' END, 0.1, 1700000000000 + n * 1200000::bigint,
    1700000000000 + n * 1200000::bigint, 1700000000000 + n * 1200000::bigint, 10, true, sha256((n / 2)::text::bytea)
  FROM generate_series(1, 2000) AS n$$);
SELECT seed_consumer_statistics('trust_due', $$(community, claim, due_at, subject)
  SELECT 1, 'communication-density', 1700000000000 + n * 1200000::bigint, sha256(n::text::bytea) FROM generate_series(1, 2000) AS n$$);

-- Each generation of search is a table of its own; its maker calls this before it attaches it.
CREATE FUNCTION seed_search_statistics(target regclass, of_generation integer) RETURNS void
LANGUAGE sql AS $$
  SELECT seed_consumer_statistics(target, format(
    $typical$(generation, community, kind, created_at, seq, event_id, author, words)
      SELECT %s, 1, CASE WHEN n %% 10 = 0 THEN 30023 ELSE 1 END, 1700000000 + n * 60, n, sha256(n::text::bytea),
        sha256((n %% 100)::text::bytea), array_to_tsvector(ARRAY['word' || n %% 50, 'word' || n %% 211, '#topic' || n %% 20])
      FROM generate_series(1, 2000) AS n$typical$, of_generation))
$$;
SELECT seed_search_statistics('post_search_documents_1', 1);
