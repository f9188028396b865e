/** The tables of members, declared (I12): accounts, invites, and roles. */
import { IS_TOPIC, MINE, TOPIC_OF_PERSON } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const membersTable = declareTable('members', {
  row: 'A member: a key that joined, requested a topic, or whose account an operator has changed.',
  people: { pubkey: { index: 'members_pkey' } },
  files: {
    member: {
      about: 'Your membership: its status, your name here, its plan, and what the operator noted about you.',
      names: ['pubkey', 'note', 'name'],
      columns: 'status, note, name, left_at, plan, plan_until, tokens_from, created_at, updated_at',
      where: OF_PUBKEY,
    },
  },
  erased: { store: 'members', member: [`${MINE} AND t.created_at <= :ms`] },
});

export const invitesTable = declareTable('invites', {
  row: 'An invite: who made it, who used it, and the hash of its code.',
  people: { created_by: 'small', used_by: 'small' },
  files: {
    invites: {
      about: 'Invites that you made or used. It does not name the other person.',
      names: ['created_by', 'used_by'],
      columns: `invite_id, topic, coalesce(created_by = :pubkey, false) AS made_by_you,
        coalesce(used_by = :pubkey, false) AS used_by_you, created_at, expires_at, revoked_at, used_at`,
      where: '(created_by = :pubkey OR used_by = :pubkey)',
    },
  },
  inNoFile: {
    code_hash: 'The hash of a random code.',
    topic: `${IS_TOPIC} It is deleted with the row of the invite.`,
  },
  erased: {
    store: 'invites',
    member: [
      't.used_by = :pubkey AND t.used_at <= :ms',
      `${TOPIC_OF_PERSON} AND t.used_by IS DISTINCT FROM :pubkey AND t.created_at <= :ms`,
      {
        where: `t.created_by = :pubkey AND t.created_at <= :ms
          AND (t.topic IS NULL OR NOT (${TOPIC_OF_PERSON}))`,
        release: 'created_by = NULL',
      },
    ],
  },
});

export const operatorsTable = declareTable('operators', {
  row: 'The role of a key in a community: operator, moderator or viewer, besides MINATO_ADMIN_PUBKEYS.',
  people: { pubkey: { index: 'operators_pkey' }, added_by: 'small' },
  files: {
    operators: {
      about: 'Your role here (operator, moderator or viewer), and that you gave roles to others.',
      names: ['pubkey', 'added_by'],
      columns: `CASE WHEN pubkey = :pubkey THEN role ELSE 'given to another key: ' || role END AS role,
        created_at`,
      where: '(pubkey = :pubkey OR added_by = :pubkey)',
    },
  },
  erased: {
    store: 'operators',
    member: [
      `${MINE} AND t.created_at <= :ms`,
      { where: 't.added_by = :pubkey AND t.created_at <= :ms', release: 'added_by = NULL' },
    ],
  },
});
