/** The tables of topics, declared (I12): requests, subscriptions, carried topics and blocked topics. */
import { ACCOUNT, IS_TOPIC, TOPIC_OF_PERSON } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const topicSubscriptionsTable = declareTable('topic_subscriptions', {
  row: 'The right of a member to a topic, from its start to its end.',
  people: { pubkey: { index: 'topic_subscriptions_member' } },
  files: {
    'topic-subscriptions': {
      about: 'Your subscriptions to topics, from their start to their end.',
      names: ['pubkey'],
      columns: 'subscription_id, request_id, topic, services, plan, status, started_at, updated_at, ended_at',
      where: OF_PUBKEY,
      order: 'started_at, subscription_id',
    },
  },
  inNoFile: { topic: `${IS_TOPIC} It is deleted with the row of the member who subscribes.` },
  erased: {
    store: 'topic_subscriptions',
    member: [ACCOUNT, `${TOPIC_OF_PERSON} AND t.pubkey <> :pubkey AND t.started_at <= :ms`],
  },
});

export const topicSubscriptionRequestsTable = declareTable('topic_subscription_requests', {
  row: "A member's request for a topic, and the decision about it.",
  people: {
    pubkey: { index: 'topic_subscription_requests_member' },
    reviewed_by: { index: 'topic_subscription_requests_reviewer', where: 'reviewed_by IS NOT NULL' },
  },
  files: {
    'topic-requests': {
      about: 'The topics that you requested, and the decision about each.',
      names: ['pubkey', 'review_note'],
      columns: 'request_id, topic, name, requested_services, status, review_note, created_at, reviewed_at',
      where: OF_PUBKEY,
      order: 'created_at, request_id',
    },
    reviews: {
      about: 'Requests that you decided as an operator: when and how, without the member.',
      names: ['reviewed_by'],
      columns: 'status, reviewed_at',
      where: 'reviewed_by = :pubkey',
    },
  },
  inNoFile: { topic: `${IS_TOPIC} It is deleted with the row of the member who requested it.` },
  erased: {
    store: 'topic_subscription_requests',
    member: [
      ACCOUNT,
      `${TOPIC_OF_PERSON} AND t.pubkey <> :pubkey AND t.created_at <= :ms
        AND NOT EXISTS (SELECT 1 FROM topic_subscriptions s
          WHERE s.request_id = t.request_id AND s.started_at > :ms)`,
      { where: 't.reviewed_by = :pubkey AND t.reviewed_at <= :ms', release: 'reviewed_by = NULL' },
    ],
  },
});

export const nodeSubscriptionsTable = declareTable('node_subscriptions', {
  row: 'A topic that the node carries, with its retention and limits.',
  inNoFile: { topic: `${IS_TOPIC} The operator added it, or members requested it.` },
  erased: { store: 'topics', member: [`${TOPIC_OF_PERSON} AND t.created_at <= :ms`] },
});

export const blockedTopicsTable = declareTable('blocked_topics', {
  row: 'A topic that no member may request and that is not carried.',
  inNoFile: { topic: `${IS_TOPIC} The operator blocked it.` },
  erased: { store: 'topics', member: [`${TOPIC_OF_PERSON} AND t.created_at <= :ms`] },
});
