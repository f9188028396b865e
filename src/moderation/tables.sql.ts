/** The tables of moderation, declared (I12): cases, actions, rules, rates and batches. */
import { aboutTarget, IS_TOPIC, MINE, sinceCase } from '../erasure/conditions.sql.js';
import { declareTable, hexOf, OF_PUBKEY } from '../postgres/table.js';

export const moderationActionsTable = declareTable('moderation_actions', {
  row: 'An action of a rule or a moderator on an event or a person; pending until `done_at`.',
  people: {
    target_pubkey: { index: 'moderation_actions_person' },
    actor: { index: 'moderation_actions_actor', where: 'actor IS NOT NULL' },
  },
  files: {
    moderation: {
      about:
        'Actions of rules and moderators on you or your events, and their notes; ' +
        'not who decided and not who reported.',
      names: ['target_event', 'target_pubkey', 'note'],
      columns: `action, at, done_at, outcome, ${hexOf('target_event')}, note,
        actor IS NULL AND rule_id IS NOT NULL AS by_a_rule`,
      where: 'target_pubkey = :pubkey',
      order: 'position',
    },
    'moderation-by-you': {
      about: 'Your actions as a moderator: when and what, not on whom.',
      names: ['actor'],
      columns: 'action, at, outcome',
      where: 'actor = :pubkey',
      order: 'position',
    },
  },
  erased: {
    store: 'moderation_actions',
    member: [
      aboutTarget(sinceCase('t.at')),
      { where: 't.actor = :pubkey AND t.at <= :ms', release: 'actor = NULL' },
    ],
  },
});

export const moderationCasesTable = declareTable('moderation_cases', {
  row:
    'An event or a person that a moderator should look at; ' +
    'reports and rules about one target share one open case.',
  people: { target_pubkey: { index: 'moderation_cases_author' } },
  files: {
    appeals: {
      about: 'Your appeals against what was done.',
      names: ['appeal'],
      columns: `${hexOf('target_event')}, appeal, appealed_at`,
      where: 'target_pubkey = :pubkey AND appealed_at IS NOT NULL',
      order: 'appealed_at, case_id',
    },
  },
  inNoFile: {
    target_event: 'Only operators see that somebody reported an event; its author sees the actions on it.',
    target_pubkey: 'Only operators see that somebody reported a person; that person sees the actions.',
    topics: `${IS_TOPIC} It belongs to the case, and is erased with that row.`,
  },
  erased: {
    store: 'moderation_cases',
    member: [
      `${aboutTarget('t.opened_at')}
        AND NOT EXISTS (SELECT 1 FROM moderation_actions a WHERE a.case_id = t.case_id)
        AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.case_id = t.case_id)`,
    ],
  },
});

export const moderationBatchesTable = declareTable('moderation_batches', {
  row: 'One action on many stored events or cases: its conditions, its progress, and how to undo it.',
  people: { actor: 'small', undone_by: 'small' },
  files: {
    'moderation-batches': {
      about: 'Batches of moderators that name you, and batches that you started: when and what.',
      names: ['conditions', 'actor', 'undone_by'],
      columns: `coalesce(conditions ->> 'case_action', action) AS action, status, created_at,
        coalesce(actor = :pubkey, false) AS by_you, coalesce(undone_by = :pubkey, false) AS undone_by_you`,
      where: '(actor = :pubkey OR undone_by = :pubkey OR strpos(conditions::text, :hex) > 0)',
      order: 'created_at, batch_id',
    },
  },
  inNoFile: {
    cursor_id: 'The cursor of a batch: the id of an event.',
    note: 'The reason, written by a moderator; it is erased with its row.',
  },
  erased: {
    store: 'moderation_batches',
    member: [
      {
        where: `(t.actor = :pubkey OR t.undone_by = :pubkey) AND t.created_at <= :ms
          AND strpos(t.conditions::text, :hex) = 0`,
        release: 'actor = nullif(u.actor, :pubkey), undone_by = nullif(u.undone_by, :pubkey)',
      },
      'strpos(t.conditions::text, :hex) > 0 AND t.created_at <= :ms',
    ],
  },
});

export const moderationVersionTable = declareTable('moderation_version', {
  row:
    'One row: the version of all enabled rules, which the lane compares, ' +
    'and the outbox position since which rules are applied on arrival.',
  erased: { never: 'It holds two numbers of the whole node, and no personal data.' },
});

export const moderationRatesTable = declareTable('moderation_rates', {
  row: 'An event that met a rule with a rate, counted by author and time.',
  people: { pubkey: { index: 'moderation_rates_person' } },
  files: {
    'moderation-rates': {
      about: 'Your events that rules with a rate count; deleted after two days.',
      names: ['pubkey', 'event_id'],
      columns: `${hexOf('event_id')}, at`,
      where: OF_PUBKEY,
      order: 'at',
    },
  },
  erased: { store: 'moderation_rates', member: [`${MINE} AND t.at <= :ms`] },
});

export const moderationRulesTable = declareTable('moderation_rules', {
  row: 'A rule of moderation: conditions that must all hold, and the action.',
  files: {
    'moderation-rules': {
      about: 'Rules of moderation that name you.',
      names: ['conditions'],
      columns: 'action, enabled, created_at',
      where: 'strpos(conditions::text, :hex) > 0',
    },
  },
  erased: {
    store: 'moderation_rules',
    member: [
      {
        where: `t.conditions->'authors' ? :hex AND t.conditions->'authors' <> jsonb_build_array(:hex)
          AND t.updated_at <= :ms AND strpos((t.conditions - 'authors')::text, :hex) = 0`,
        release: `conditions = jsonb_set(u.conditions, '{authors}', (u.conditions->'authors') - :hex)`,
      },
      // A rule whose only author is erased would match everybody, so it is deleted.
      'strpos(t.conditions::text, :hex) > 0 AND t.updated_at <= :ms',
    ],
  },
});
