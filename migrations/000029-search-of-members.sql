-- The search of members by name. It uses indexes on the rows that exist, so that nothing has to be kept in step: the profiles
-- are the current events of kind 0, the notes and names are columns of `members`. Other events cost nothing.

-- The names in a profile (kind 0), folded, one per line. NULL where the content is no JSON object: a profile that nobody can
-- read must not stop the lane. Each function uses built-in functions only, because a restore runs them with an empty search_path.
CREATE FUNCTION profile_names(payload text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  profile jsonb;
BEGIN
  profile := (payload::jsonb ->> 'content')::jsonb;
  RETURN lower(normalize(concat_ws(E'\n', left(profile ->> 'name', 100),
    left(coalesce(profile ->> 'display_name', profile ->> 'displayName'), 100), left(profile ->> 'nip05', 100)), NFKC));
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

-- Pieces of these lengths of a text, each with its community: an index of them finds every part of a name, in any script.
CREATE FUNCTION text_pieces(community integer, words text, lengths integer[]) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT array_agg(DISTINCT community || ':' || substr(words, at, size))
  FROM unnest(lengths) AS size, generate_series(1, least(length(words), 1300) - size + 1) AS at
$$;

-- Without fastupdate: its list of pending entries would be worked off by one unlucky insert in the lane.
CREATE INDEX events_current_profile_names ON events_current
  USING gin (text_pieces(community, profile_names(payload), '{1,2}')) WITH (fastupdate = off) WHERE kind = 0 AND hidden IS NULL;
CREATE INDEX members_words ON members
  USING gin (text_pieces(community, lower(normalize(coalesce(name, '') || ' ' || coalesce(note, ''), NFKC)), '{1,2}')) WITH (fastupdate = off)
  WHERE name IS NOT NULL OR note IS NOT NULL;
CREATE INDEX members_newest ON members (community, created_at, pubkey);

-- The erasures of one member, newest first.
CREATE INDEX erasures_member ON erasures (community, pubkey, requested_at, erasure_id) WHERE pubkey IS NOT NULL;
