/**
 * Creates a person with data in every store of the registry: events over the socket, the rest as the node
 * writes it. `mark` is in every text, so that a test can see to which person and community a row belongs.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { expect } from 'vitest';
import { isDenial } from '../../../src/api/rules-errors.js';
import { settingsFrom } from '../../../src/communities/rules-settings.js';
import { addOperator } from '../../../src/members/operators.sql.js';
import { approveRequest, requestTopic } from '../../../src/topics/requests.sql.js';
import { requestRules } from '../../../src/topics/rules-requests.js';
import { RawClient } from '../clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../events.js';

export interface Place {
  readonly pool: Pool;
  readonly community: number;
  /** The WebSocket URL of the community. */
  readonly url: string;
}

const RULES = requestRules(settingsFrom(new Map()));

export async function fillEveryStore(
  place: Place,
  person: Author,
  boss: Author,
  mark: string,
): Promise<void> {
  await publishEvents(place, person, mark);
  await joinTopic(place, person, boss, mark);
  await fillRows(place, person, boss, mark);
}

async function publishEvents({ url }: Place, person: Author, mark: string): Promise<void> {
  const client = await RawClient.connect(url);
  const post = async (author: Author, draft: Parameters<typeof sign>[1]) => {
    const event = sign(author, draft);
    expect(await client.publish(event)).toEqual([true, '']);
    return event;
  };
  const at = nowSeconds();
  await post(person, { content: `${mark} said` });
  await post(person, { kind: 0, content: `{"about":"${mark} old"}`, created_at: at - 10 });
  await post(person, { kind: 0, content: `{"about":"${mark} new"}`, created_at: at });
  const regretted = await post(person, { content: `${mark} regretted` });
  const wraps = [1, 2].map((number) => ({
    kind: 1_059,
    content: `${mark} sealed ${number}`,
    tags: [['p', person.pubkey]],
  }));
  await post(newAuthor(), wraps[0]);
  const unwanted = await post(newAuthor(), wraps[1]);
  await post(person, { kind: 5, tags: [regretted, unwanted].map(({ id }) => ['e', id]), content: mark });
  await client.close();
}

async function joinTopic(
  { pool, community }: Place,
  person: Author,
  boss: Author,
  mark: string,
): Promise<void> {
  const topic = `kukuri:${randomBytes(32).toString('hex')}`;
  const ask = { community, pubkey: person.pubkey, topic, name: `${mark} topic`, services: [] };
  const requested = await requestTopic(pool, ask, RULES, Date.now());
  if (isDenial(requested)) throw new Error(requested.denied);
  const { requestId } = requested.request;
  const review = { community, requestId, actor: boss.pubkey, note: `${mark} welcome` };
  expect(isDenial(await approveRequest(pool, review, RULES, Date.now()))).toBe(false);
  const operator = { community, pubkey: person.pubkey, actor: boss.pubkey };
  expect(isDenial(await addOperator(pool, operator, { fixed: [] }, Date.now()))).toBe(false);
}

async function fillRows(
  { pool, community }: Place,
  person: Author,
  boss: Author,
  mark: string,
): Promise<void> {
  const key = Buffer.from(person.pubkey, 'hex');
  const stranger = randomBytes(32);
  const now = Date.now();
  const put = (text: string, ...values: unknown[]) => pool.query(text, [community, key, ...values]);
  await put(
    `INSERT INTO vanish_marks (community, pubkey, until, recipient_tag, erased_at, request)
     VALUES ($1, $2, 1, 0, 1, $3)`,
    randomBytes(32),
  );
  await put(
    `INSERT INTO history_deletions (community, author, kind, requested_at, created_at, seq, address_hash)
     VALUES ($1, $2, 30023, 1, 1, 0, $3)`,
    randomBytes(32),
  );
  await put(
    `INSERT INTO post_search_documents (generation, community, author, kind, created_at, seq, event_id, words)
     VALUES (1, $1, $2, 1, 1, 1, $3, array_to_tsvector(ARRAY[$4::text]))`,
    randomBytes(32),
    `${mark}-word`,
  );
  await pool.query(
    `INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('another', 0, 1)
     ON CONFLICT DO NOTHING`,
  );
  await put(
    `INSERT INTO consumer_dead_letters (consumer, generation, seq, ingested_at, created_at, failed_at,
       community, kind, attempts, op,
       error, event_id, author, topics)
     SELECT 'another', 1, coalesce(max(seq), 0) + 1, 1, 1, 1, $1, 1, 5, 'upsert', $4, $3, $2, '{}'
     FROM consumer_dead_letters`,
    randomBytes(32),
    `${mark} failed`,
  );
  // A review of somebody else's request, and another operator added.
  await pool.query('INSERT INTO members (community, pubkey, created_at, updated_at) VALUES ($1, $2, 1, 1)', [
    community,
    stranger,
  ]);
  await put(
    `INSERT INTO topic_subscription_requests (request_id, community, pubkey, topic, status, reviewed_by,
       created_at, reviewed_at)
     VALUES ($3, $1, $4, 'kukuri:global', 'rejected', $2, 1, 2)`,
    randomUUID(),
    stranger,
  );
  await put(
    'INSERT INTO operators (community, pubkey, added_by, created_at) VALUES ($1, $3, $2, 1)',
    stranger,
  );
  await putConsent(pool, community, key, mark);
  await put(
    `INSERT INTO usage_counters (community, pubkey, day, metric, used) VALUES ($1, $2, 20000, 'exports', 1)`,
  );
  await put(
    `INSERT INTO plan_events (community, pubkey, event_id, plan, received_at) VALUES ($1, $2, $3, 'free', 1)`,
    `${mark}-payment`,
  );
  await put(
    `INSERT INTO usage_requests (community, pubkey, metric, request_id, counted_at)
     VALUES ($1, $2, 'exports', $3, 1)`,
    `${mark}-request`,
  );
  await put(
    'INSERT INTO revoked_tokens (community, pubkey, token_id, expires_at) VALUES ($1, $2, $3, 1)',
    `${mark}-token`,
  );
  await put(
    `INSERT INTO reports (report_id, community, pubkey, target_pubkey, reason, comment, created_at)
     VALUES ($3, $1, $2, $4, 'spam', $5, 1)`,
    randomUUID(),
    stranger,
    `${mark} reports`,
  );
  // What others say about the person is not exported to the person.
  await put(
    `INSERT INTO reports (report_id, community, pubkey, target_pubkey, reason, comment, created_at)
     VALUES ($3, $1, $4, $2, 'spam', 'whispered about somebody', 1)`,
    randomUUID(),
    stranger,
  );
  await put(
    `INSERT INTO outbox_followers (community, registered_by, name, acknowledged_seq, registered_at, seen_at,
       limit_seconds)
     VALUES ($1, $2, $3, 1000000000, 1, 1, 10)`,
    `${mark}-index`,
  );
  await put(
    `INSERT INTO sign_in_links (community, pubkey, created_at, expires_at, code_hash)
     VALUES ($1, $2, 1, $4, $3)`,
    randomBytes(32),
    now + 600_000,
  );
  await put(
    `INSERT INTO operator_sessions (community, pubkey, created_at, expires_at, token_hash)
     VALUES ($1, $2, 1, $4, $3)`,
    randomBytes(32),
    now + 3_600_000,
  );
  await put(
    `INSERT INTO csrf_tokens (community, pubkey, created_at, expires_at, token_hash, csrf_hash)
     VALUES ($1, $2, 1, $4, $3, $3)`,
    randomBytes(32),
    now + 3_600_000,
  );
  await put(
    `INSERT INTO erasures (erasure_id, community, pubkey, slug, type, cause, stage, requested_at, updated_at,
       grace_until, hold_reason)
     VALUES ($3, $1, $2, 'here', 'member', 'operator', 'grace', 1, 1, 9000000000000000, $4)`,
    randomUUID(),
    `${mark} asked`,
  );
  await putTrust(pool, community, key, stranger);
  await put(
    `INSERT INTO invites (invite_id, community, code_hash, created_by, created_at, expires_at, used_by,
       used_at)
     VALUES ($3, $1, $4, $2, 1, 2, $5, 2), ($6, $1, $7, $5, 1, 2, $2, 2)`,
    randomUUID(),
    randomBytes(32),
    stranger,
    randomUUID(),
    randomBytes(32),
  );
  await putModeration(pool, community, key, mark);
  await put(
    'INSERT INTO blocked_authors (community, pubkey, reason, created_at) VALUES ($1, $2, $3, 1)',
    `${mark} blocked`,
  );
  await pool.query(
    `INSERT INTO community_settings (community, key, value, updated_at)
     VALUES ($1, 'subscription.allowList', $2, 1)
     ON CONFLICT (community, key) DO UPDATE SET value = community_settings.value || excluded.value`,
    [community, JSON.stringify([person.pubkey])],
  );
  await pool.query('UPDATE members SET note = $3 WHERE community = $1 AND pubkey = $2', [
    community,
    key,
    `${mark} noted`,
  ]);
  // An action of the boss on the person, and one of the person on the boss.
  await pool.query(
    `INSERT INTO audit_log (community, at, actor, action, target, details)
     VALUES ($1, $2, $3, 'member.change', $4, $5), ($1, $2, $6, 'member.change', $7, $8)`,
    [
      community,
      now,
      Buffer.from(boss.pubkey, 'hex'),
      person.pubkey,
      JSON.stringify({ note: `${mark} warned` }),
      key,
      boss.pubkey,
      JSON.stringify({ note: 'whispered about the boss' }),
    ],
  );
}

async function putTrust(pool: Pool, community: number, key: Buffer, stranger: Buffer): Promise<void> {
  await pool.query(
    `INSERT INTO trust_people (community, pubkey) VALUES ($1, $2), ($1, $3) ON CONFLICT DO NOTHING`,
    [community, key, stranger],
  );
  await pool.query(
    `INSERT INTO trust_contacts (at, event, community, kind, author, named, shared)
     SELECT 1, $4, $1, 1, a.id, n.id, 1 FROM trust_people a JOIN trust_people n USING (community)
     WHERE a.community = $1 AND a.pubkey = $2 AND n.pubkey = $3`,
    [community, key, stranger, randomBytes(32).readBigInt64BE()],
  );
  await pool.query(
    `INSERT INTO trust_reports (community, at, weight, reporter, subject, target_event, source, reason)
     VALUES ($1, 1, 1, $2, $3, $4, $5, 'spam')`,
    [community, key, stranger, randomBytes(32), randomBytes(16)],
  );
  // The reporters of the person are not exported to the person.
  await pool.query(
    `INSERT INTO trust_reports (community, at, weight, reporter, subject, target_event, source, reason)
     VALUES ($1, 1, 1, $3, $2, '', $4, 'whispered about somebody')`,
    [community, key, stranger, randomBytes(16)],
  );
  await pool.query(
    `INSERT INTO trust_scores (community, claim, score, computed_at, rank, grounded, subject)
     VALUES ($1, 'report-based', 0.1, 1, 90, true, $2)`,
    [community, key],
  );
  await pool.query(
    'INSERT INTO trust_authors (community, first_seen_at, pubkey) VALUES ($1, 1, $2) ON CONFLICT DO NOTHING',
    [community, key],
  );
}

/** A rule that names the person, labels, rates, and actions of the person as a moderator. */
async function putModeration(pool: Pool, community: number, key: Buffer, mark: string): Promise<void> {
  const [rule, event] = [randomUUID(), randomBytes(32)];
  await pool.query(
    `INSERT INTO moderation_rules (rule_id, community, name, conditions, action, created_at, updated_at)
     VALUES ($1, $2, $3, $4, 'hide', 1, 1)`,
    [rule, community, mark, JSON.stringify({ authors: [key.toString('hex')] })],
  );
  await pool.query(
    `INSERT INTO moderation_rates (community, rule_id, at, seq, pubkey, event_id)
     VALUES ($1, $2, $5, 1, $3, $4)`,
    [community, rule, key, event, Date.now()],
  );
  await pool.query(
    `INSERT INTO moderation_actions (action_id, community, rule_id, action, at, done_at, outcome, actor,
       target_event, target_pubkey, note)
     VALUES ($1, $2, $3, 'remove', 1, 1, 'removed', NULL, $4, $5, $6),
       ($7, $2, NULL, 'ban', 1, 1, 'done', $5, NULL, $8, 'whispered')`,
    [randomUUID(), community, rule, event, key, `${mark} judged`, randomUUID(), randomBytes(32)],
  );
  await pool.query(
    `INSERT INTO labels (label_id, community, created_at, signed_at, lapses_at, published_at, confidence,
       label, target_event,
       target_pubkey, policy) VALUES ($1, $2, 1, 1, 2, 1, 1, 'spam', $3, $4, $5)`,
    [randomUUID(), community, event, key, `${mark} policy`],
  );
  await pool.query(
    `INSERT INTO moderation_batches (batch_id, community, status, action, created_at, updated_at, cursor_at,
       by_rule, conditions, note)
     VALUES ($1, $2, 'done', 'remove', 1, 1, 0, false, $3, '')`,
    [randomUUID(), community, JSON.stringify({ authors: [key.toString('hex')] })],
  );
  await pool.query(
    `INSERT INTO moderation_cases (case_id, community, status, opened_at, updated_at, target_pubkey, reason,
       appeal, appealed_at)
     VALUES ($1, $2, 'dismissed', 1, 1, $3, 'appeal', $4, 1)`,
    [randomUUID(), community, key, `${mark} appeal`],
  );
}

async function putConsent(pool: Pool, community: number, key: Buffer, mark: string): Promise<void> {
  await pool.query(
    `INSERT INTO policy_versions (community, type, version, status, created_at, published_at)
     VALUES ($1, 'terms', $2, 'published', 1, 1)`,
    [community, mark],
  );
  const text = [community, mark, randomBytes(32)];
  await pool.query(
    `INSERT INTO policy_texts (community, type, version, locale, title, content, content_hash, updated_at)
     VALUES ($1, 'terms', $2, 'en', 'Terms', 'Be kind.', $3, 1)`,
    text,
  );
  await pool.query(
    `INSERT INTO consents (consent_id, community, pubkey, type, version, locale, content_hash, consented_at)
     VALUES ($4, $1, $5, 'terms', $2, 'en', $3, 1)`,
    [...text, randomUUID(), key],
  );
}
