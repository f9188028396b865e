/** The declared tables of trust (I12): the grounds of scores, the scores, and which scores are due. */
import { MINE } from '../erasure/conditions.sql.js';
import { KIND_VANISH } from '../events/rules/classify.js';
import { declareTable, hexOf, OF_PUBKEY } from '../postgres/table.js';
import { DENSITY_REST_MS, EVENT_ID } from './grounds.sql.js';

/** Scores that depended on erased rows become due. A member who is erased completely has no score. */
const REPORTS_DUE = `INSERT INTO trust_due (community, claim, due_at, subject)
  SELECT DISTINCT c.community, 'report-based', :now, c.subject FROM changed c
  WHERE :bounded OR c.subject <> :pubkey ORDER BY 1, 4 ON CONFLICT DO NOTHING`;

/**
 * For an erased member who posts again: the arrival of the first event that is still stored. Where events are
 * not in the database, it is the first one in the log of changes that was not deleted again.
 */
const SEEN_SINCE = `SELECT coalesce(
  (SELECT min(e.ingested_at) FROM events e
   WHERE e.community = :community AND e.pubkey = :pubkey AND e.kind <> ${KIND_VANISH}),
  (SELECT min(o.ingested_at) FROM events_outbox o
   WHERE o.community = :community AND o.author = :pubkey AND o.ingested_at >= 0 AND o.op = 'upsert'
     AND o.created_at > :until AND NOT EXISTS (SELECT 1 FROM events_outbox d
       WHERE d.community = o.community AND d.author = o.author AND d.ingested_at >= 0
         AND d.event_id = o.event_id AND d.op = 'delete' AND d.seq > o.seq)))`;

/** The number of the member among the people of contacts. */
const MY_NUMBER = `(SELECT p.id FROM trust_people p
  WHERE p.community = :community AND p.pubkey = :pubkey)`;

export const trustContactsTable = declareTable('trust_contacts', {
  row: 'A public event that names somebody, as it counts for communication density.',
  files: {
    'trust-contacts': {
      about:
        'Public events in which you named others or others named you, as they count for your ' +
        'communication density; without its id if the event was purged.',
      names: ['author', 'named', 'event'],
      columns: `direction, encode(${EVENT_ID}, 'hex') AS event_id, c.kind, c.at`,
      from: `FROM (SELECT *, 'out' AS direction FROM trust_contacts WHERE author = ${MY_NUMBER}
        UNION ALL SELECT *, 'in' FROM trust_contacts WHERE named = ${MY_NUMBER}) c
        JOIN trust_people a ON a.id = c.author ORDER BY c.at, c.event`,
    },
  },
  erased: {
    store: 'trust',
    // By the author, because an index by community would be as large as the others together.
    through: 't.author IN (SELECT p.id FROM trust_people p WHERE p.community = :community)',
    member: [
      {
        where: `(t.author = ${MY_NUMBER} OR t.named = ${MY_NUMBER}) AND t.at <= :ms`,
        // Later, as for any change: the next batches need not wait for scores that are being computed.
        follow: `INSERT INTO trust_due (community, claim, due_at, subject)
          SELECT p.community, 'communication-density', :now + ${DENSITY_REST_MS}, p.pubkey FROM trust_people p
          WHERE p.id IN (SELECT unnest(ARRAY[c.author, c.named]) FROM changed c)
            AND (:bounded OR p.pubkey <> :pubkey) ORDER BY 1, 4 ON CONFLICT DO NOTHING`,
      },
    ],
  },
});

export const trustPeopleTable = declareTable('trust_people', {
  row: 'Somebody who is the author of a contact or named in one, with the number that contacts have.',
  people: { pubkey: { index: 'trust_people_key' } },
  inNoFile: { pubkey: 'Only gives a number to a key; the contacts are in the file trust-contacts.' },
  erased: {
    store: 'trust',
    member: [
      `${MINE} AND (NOT :bounded OR NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.author = t.id)
        AND NOT EXISTS (SELECT 1 FROM trust_contacts c WHERE c.named = t.id))`,
    ],
  },
});

export const trustReportsTable = declareTable('trust_reports', {
  row: 'A report about a person, with the weight that its reporter had when it arrived.',
  people: { reporter: { index: 'trust_reports_reporter' }, subject: { index: 'trust_reports_subject' } },
  files: {
    'trust-reports': {
      about: 'Your reports, with the weight that each had when it arrived.',
      names: ['reporter', 'source', 'target_event'],
      columns: `${hexOf('subject')}, ${hexOf('target_event')}, ${hexOf('source')}, reason, weight, at`,
      where: 'reporter = :pubkey',
      order: 'at, source, subject',
    },
  },
  inNoFile: {
    subject: 'Reports belong to their reporters and are shown to nobody else; the score shows their sum.',
  },
  erased: {
    store: 'trust',
    member: [
      {
        where: '(t.reporter = :pubkey OR t.subject = :pubkey) AND t.at <= :ms',
        follow: REPORTS_DUE,
      },
    ],
  },
});

export const trustAuthorsTable = declareTable('trust_authors', {
  row: 'When a key was first seen here, for its standing.',
  people: { pubkey: { index: 'trust_authors_pkey' } },
  files: {
    'first-seen': {
      about: 'When you were first seen here.',
      names: ['pubkey'],
      columns: 'first_seen_at, stands_from',
      where: OF_PUBKEY,
    },
  },
  erased: {
    store: 'trust',
    member: [
      {
        where: `${MINE} AND t.first_seen_at <= :ms
          AND (NOT :bounded OR t.first_seen_at < coalesce((${SEEN_SINCE}), :ms + 1))`,
        follow: `INSERT INTO trust_authors (community, first_seen_at, pubkey)
          SELECT c.community, l.at, c.pubkey FROM changed c CROSS JOIN (${SEEN_SINCE}) AS l (at)
          WHERE l.at IS NOT NULL AND :bounded`,
      },
    ],
  },
});

export const trustDueTable = declareTable('trust_due', {
  row: 'A score that has to be computed again.',
  people: { subject: { index: 'trust_due_pkey' } },
  inNoFile: { subject: 'Only says that a score has to be computed again; deleted within a minute or so.' },
  erased: { store: 'trust', member: ['t.subject = :pubkey AND t.due_at <= :ms'] },
});

const ASSERTED_BY = "The node's own key, which signed the assertion.";

export const trustScoresTable = declareTable('trust_scores', {
  row: 'A score as it was last computed, and what was last asserted of it.',
  people: { subject: { index: 'trust_scores_pkey' }, asserted_by: { unchecked: ASSERTED_BY } },
  files: {
    'trust-scores': {
      about: 'Your trust scores, and what was last asserted of them; not who reported you.',
      names: ['subject', 'assertion'],
      columns: `claim, score, rank, computed_at, ${hexOf('assertion')}, asserted_rank, asserted_at`,
      where: 'subject = :pubkey',
      order: 'claim',
    },
  },
  inNoFile: { asserted_by: ASSERTED_BY },
  erased: { store: 'trust', member: ['t.subject = :pubkey AND t.computed_at <= :ms'] },
});

export const trustRulesTable = declareTable('trust_rules', {
  row: 'The rules by which events became contacts: which kinds, and which topics were public.',
  erased: { store: 'trust' },
});

export const trustSweepsTable = declareTable('trust_sweeps', {
  row: 'The rules by which the scores of a community are computed, and the cursors of passes over them.',
  inNoFile: {
    after: 'The cursor of computing all scores again; empty when it is done.',
    passed: 'The cursor of the daily pass over the scores; empty when it is done.',
  },
  erased: { store: 'trust' },
});
