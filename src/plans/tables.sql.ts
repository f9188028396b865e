/** The tables of plans, declared (I12): what a member may use and has used. */
import { IS_PAST_DAY, MINE } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const usageCountersTable = declareTable('usage_counters', {
  row: 'What a member used of a plan on a day.',
  people: { pubkey: { index: 'usage_counters_pkey' } },
  files: {
    usage: {
      about: 'What you used of your plan, by day (days since 1970).',
      names: ['pubkey'],
      columns: 'day, metric, used',
      where: OF_PUBKEY,
      order: 'day, metric',
    },
  },
  erased: { store: 'usage', member: [`${MINE} AND ${IS_PAST_DAY}`] },
});

export const usageRequestsTable = declareTable('usage_requests', {
  row: 'A request that was counted, so that one sent twice counts once.',
  people: { pubkey: { index: 'usage_requests_pkey' } },
  files: {
    'usage-requests': {
      about: 'Requests of yours that were counted, so that one sent twice counts once.',
      names: ['pubkey'],
      columns: 'metric, request_id, counted_at',
      where: OF_PUBKEY,
    },
  },
  erased: { store: 'usage', member: [`${MINE} AND t.counted_at <= :ms`] },
});

export const planEventsTable = declareTable('plan_events', {
  row: 'A call of a payment provider that was carried out; sent again, it changes nothing.',
  people: { pubkey: { index: 'plan_events_pubkey' } },
  files: {
    'plan-changes': {
      about: 'Changes of your plan that a payment provider made.',
      names: ['pubkey', 'event_id'],
      columns: 'event_id, plan, plan_until, received_at',
      where: OF_PUBKEY,
      order: 'received_at, event_id',
    },
  },
  erased: { store: 'plan_events', member: [`${MINE} AND t.received_at <= :ms`] },
});

export const plansTable = declareTable('plans', {
  row: 'A plan of a community and its limits.',
  erased: { store: 'plans' },
});

export const webhookSecretsTable = declareTable('webhook_secrets', {
  row: 'The secret that the payment provider of a community signs its calls with.',
  erased: { store: 'plans' },
});
