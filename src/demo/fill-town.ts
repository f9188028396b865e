/**
 * Fills the control plane of the demo, with the functions that the API uses: topics, terms, plans, rules,
 * members, invites and usage. Times are those of the story. Doing it again changes nothing.
 */
import { writeSetting } from '../communities/communities.sql.js';
import { createInvite, listInvites, revokeInvite } from '../members/invites.sql.js';
import { changeMember, readMember } from '../members/members.sql.js';
import { ruleSchema } from '../moderation/rules.js';
import { compileRule } from '../moderation/rules-match.js';
import { changeRule, createRule, listRules, noteTried } from '../moderation/stored-rules.sql.js';
import { tryRule } from '../moderation/trial.js';
import { assignPlan, createPlan, readMemberPlan, readPlan } from '../plans/plans.sql.js';
import { countUse } from '../plans/usage.sql.js';
import { giveConsent, readRequired } from '../policies/consents.sql.js';
import {
  createPolicy,
  makeCurrent,
  publishPolicy,
  readCurrentPolicies,
  readPolicy,
  writeText,
} from '../policies/policies.sql.js';
import { POLICY_TYPES, type PolicyRef } from '../policies/rules.js';
import { blockTopic, readBlockedTopic } from '../topics/blocked-topics.sql.js';
import { createNodeTopic, readNodeTopic } from '../topics/node-topics.sql.js';
import {
  approveRequest,
  cancelRequest,
  joinWithInvite,
  listRequestsOf,
  rejectRequest,
  requestTopic,
  type TopicRequest,
} from '../topics/requests.sql.js';
import { topicId } from '../topics/rules-id.js';
import { requestRules } from '../topics/rules-requests.js';
import { checkInterrupt, type Filling, partOf, unless } from './filling.js';
import { RULE, RULE_DRAFT } from './rules-cases.js';
import { DAY, HOUR, type Neighbour } from './rules-drafts.js';
import { BLOCKED_TOPIC, type Joining, PLAN, TERMS, TOPICS } from './rules-town.js';

const ms = (seconds: number) => seconds * 1_000;
/** Of a person or a community of the demo: there are never more. */
const PAGE = { limit: 500 };

/** Whoever decides about requests and cases. The key has no rights: it is only named. */
export const actorOf = ({ story }: Filling): string => partOf(story, 'moderator').pubkey;

export function topicNamed({ naming }: Pick<Filling, 'naming'>, name: string): string {
  const id = topicId(name, naming);
  if (typeof id !== 'string') throw new Error(`"${name}" cannot be a topic: ${id.why}`);
  return id;
}

// ── Before anybody comes ───────────────────────────────────────────────────────────────────────────────────

/** What events and members need. `start`: the begin of the story, in seconds. */
export async function prepareTopics(
  filling: Pick<Filling, 'pool' | 'community' | 'naming' | 'tally' | 'refresh'>,
  start: number,
): Promise<void> {
  const { pool, community, tally } = filling;
  const { id, settings } = community();
  for (const { name, public: isPublic, priority, retentionDays } of Object.values(TOPICS)) {
    const topic = topicNamed(filling, name);
    const isNew = (await readNodeTopic(pool, id, topic)) === undefined;
    const policy = retentionDays === undefined ? {} : { retentionDays };
    const wanted = { community: id, topic, name, public: isPublic, priority, policy };
    const cap = { enabledMax: settings['topic.enabledMax'] };
    if (isNew) unless(await createNodeTopic(pool, wanted, cap, ms(start)), ['TOPIC_EXISTS']);
    tally.note('topics', isNew);
  }
  await filling.refresh();
}

const TOWN = {
  'relay.name': 'Harbour town 港町',
  'relay.description':
    'Invented neighbours talk about ferries, gardens and the summer festival. 架空の港町の住民の会話です。',
} as const;

/** Only a node of the demo's own is named: another community has its name already. */
export async function nameTown({ pool, community, now }: Filling): Promise<void> {
  for (const [key, value] of Object.entries(TOWN) as [keyof typeof TOWN, string][])
    await writeSetting(pool, community().id, key, value, now());
}

export async function prepareTown(filling: Filling): Promise<void> {
  const { pool, community, story, tally } = filling;
  const { id } = community();
  const actor = actorOf(filling);
  const start = ms(story.span.start);
  const topic = topicNamed(filling, BLOCKED_TOPIC.name);
  const isUnblocked = (await readBlockedTopic(pool, id, topic)) === undefined;
  const { reason } = BLOCKED_TOPIC;
  if (isUnblocked) unless(await blockTopic(pool, { community: id, topic, reason, actor }, start), []);
  tally.note('blocked topics', isUnblocked);
  const { planId, name, maxTopics, exportsPerDay } = PLAN;
  const isNewPlan = (await readPlan(pool, id, planId)) === undefined;
  const plan = { community: id, planId, name, limits: { maxTopics, exportsPerDay }, actor };
  if (isNewPlan) unless(await createPlan(pool, plan, start), ['PLAN_EXISTS']);
  tally.note('plans', isNewPlan);
  await writeTerms(filling);
  await writeRules(filling);
  await filling.refresh();
}

/** Terms that the community has already stay the current ones. */
async function writeTerms(filling: Filling): Promise<void> {
  const { pool, community, story, tally } = filling;
  const { id } = community();
  const start = ms(story.span.start);
  const current = await readCurrentPolicies(pool, id);
  for (const type of POLICY_TYPES) {
    const ref = { community: id, type, version: TERMS.version, actor: actorOf(filling) };
    const isNew = (await readPolicy(pool, id, ref))?.status !== 'current';
    tally.note('terms', isNew);
    if (!isNew || current.some((one) => one.type === type)) continue;
    unless(await createPolicy(pool, ref, start), ['POLICY_EXISTS']);
    for (const text of TERMS.texts.filter((one) => one.type === type))
      unless(await writeText(pool, { ...ref, locale: text.locale }, text, start), ['STATUS_CONFLICT']);
    unless(await publishPolicy(pool, ref, start), []);
    unless(await makeCurrent(pool, ref, start), []);
  }
}

/** One rule is tried and enabled, the other one is a draft. */
async function writeRules(filling: Filling): Promise<void> {
  const { pool, store, community, story, tally } = filling;
  const { id } = community();
  const start = ms(story.span.start);
  const scope = { community: id, actor: actorOf(filling) };
  for (const given of [RULE, RULE_DRAFT]) {
    const spec = ruleSchema.parse(given);
    const known = (await listRules(pool, id)).find(({ name }) => name === spec.name);
    const isNew = known === undefined;
    const rule = known ?? unless(await createRule(pool, scope, spec, start), []);
    tally.note('rules', isNew);
    if (given !== RULE || rule === undefined || rule.enabled) continue;
    await tryRule(pool, store.stored, community(), compileRule(rule), 1);
    await noteTried(pool, rule);
    const ref = { ...scope, ruleId: rule.ruleId };
    unless(await changeRule(pool, ref, { enabled: true }, () => spec, start), []);
  }
}

// ── Members ────────────────────────────────────────────────────────────────────────────────────────────────

/** `gone`: public keys that an earlier run has erased. Nothing is written about them again. */
export async function fillMembers(filling: Filling, gone: ReadonlySet<string>): Promise<void> {
  const { story } = filling;
  const isHere = ({ place }: { readonly place: number }) => !gone.has(story.people[place]!.pubkey);
  for (const joining of story.joinings.filter(isHere)) await join(filling, joining);
  await invite(filling);
  for (const person of story.people.filter(isHere)) {
    await agree(filling, person);
    await name(filling, person);
  }
  await support(filling);
  const { pool, community, tally, fixed } = filling;
  const who = partOf(story, 'disabled');
  const isNew = (await readMember(pool, community().id, who.pubkey))?.status === 'active';
  const change = { community: community().id, pubkey: who.pubkey, status: 'disabled' } as const;
  const note = 'Asked for a break until spring.';
  const at = ms(story.span.end - DAY);
  if (isNew)
    unless(await changeMember(pool, { ...change, note, actor: actorOf(filling) }, { fixed }, at), []);
  tally.note('disabled members', isNew);
}

async function requestFor(
  filling: Filling,
  pubkey: string,
  topic: string,
): Promise<TopicRequest | undefined> {
  const { pool, community } = filling;
  const page = unless(await listRequestsOf(pool, { community: community().id, pubkey }, PAGE), []);
  return page?.items.find((one) => one.topic === topic);
}

async function join(filling: Filling, joining: Joining): Promise<void> {
  checkInterrupt(filling);
  const { pool, community, story, tally } = filling;
  const { id, settings } = community();
  const { pubkey } = story.people[joining.place]!;
  const topic = topicNamed(filling, joining.topic);
  const before = await requestFor(filling, pubkey, topic);
  const ask = { community: id, pubkey, topic, name: joining.topic, services: [] };
  const rules = { ...requestRules(settings), autoApproval: 'off' as const };
  const refusals = ['ALREADY_SUBSCRIBED', 'ACCOUNT_DISABLED', 'TOPIC_BLOCKED', 'BEING_ERASED'] as const;
  const request =
    before ?? unless(await requestTopic(pool, ask, rules, ms(joining.askedAt)), refusals)?.request;
  tally.note('requests', before === undefined && request !== undefined);
  if (request?.status === 'pending') await answer(filling, joining, request);
}

async function answer(filling: Filling, { answer: given, answeredAt, note }: Joining, request: TopicRequest) {
  const { pool, community } = filling;
  const { id, settings } = community();
  const { requestId, pubkey } = request;
  const review = { community: id, requestId, note, actor: actorOf(filling) };
  const at = ms(answeredAt);
  const cap = { enabledMax: settings['topic.enabledMax'] };
  if (given === 'approved') unless(await approveRequest(pool, review, cap, at), ['ACCOUNT_DISABLED']);
  if (given === 'rejected') unless(await rejectRequest(pool, review, at), []);
  if (given === 'cancelled') unless(await cancelRequest(pool, { community: id, pubkey, requestId }, at), []);
}

/** Every ninth neighbour has not accepted the terms yet. */
async function agree({ pool, community, tally }: Filling, person: Neighbour): Promise<void> {
  const { id } = community();
  const { place, part, pubkey, language: locale, joinedAt } = person;
  if (part === 'neighbour' && place % 9 === 0) return;
  const required = (await readRequired(pool, id, pubkey)).filter(({ version }) => version === TERMS.version);
  for (const { type, version, consentId } of required) {
    const ref: PolicyRef = { type, version };
    const agreeing = { community: id, pubkey, ...ref, locale };
    const refusals = ['ACCOUNT_DISABLED', 'BEING_ERASED'] as const;
    if (consentId === null) unless(await giveConsent(pool, agreeing, ms(joinedAt + 120)), refusals);
    tally.note('consents', consentId === null);
  }
}

/** Some have a name of this community (NIP-05). */
async function name(filling: Filling, person: Neighbour): Promise<void> {
  const { pool, community, tally, fixed } = filling;
  if (person.place % 3 !== 0 || person.part === 'erased') return;
  const { pubkey, joinedAt } = person;
  const member = await readMember(pool, community().id, pubkey);
  if (member?.status !== 'active') return;
  const isNew = member.name === null;
  const change = { community: community().id, pubkey, name: person.name, actor: actorOf(filling) };
  if (isNew) unless(await changeMember(pool, change, { fixed }, ms(joinedAt + DAY)), ['NAME_TAKEN']);
  tally.note('names', isNew);
}

/** Invites: used, open, for one topic, revoked, expired. Each is known by when it was made. */
async function invite(filling: Filling): Promise<void> {
  const { pool, community, story, tally } = filling;
  const { id, settings } = community();
  const { end } = story.span;
  const actor = actorOf(filling);
  const guest = partOf(story, 'invited');
  const harbour = topicNamed(filling, TOPICS.harbour.name);
  if ((await requestFor(filling, guest.pubkey, harbour)) === undefined) {
    const wanted = { community: id, topic: harbour, expiresAt: ms(guest.joinedAt + 7 * DAY), actor };
    const made = unless(await createInvite(pool, wanted, ms(guest.joinedAt - HOUR)), [])!;
    const claim = { community: id, pubkey: guest.pubkey, claim: made.code, otherwise: harbour };
    unless(await joinWithInvite(pool, claim, requestRules(settings), ms(guest.joinedAt)), []);
    tally.note('invites', true);
  } else tally.note('invites', false);
  const known = unless(await listInvites(pool, id, PAGE), [])!.items;
  const others = [
    { days: 2, validDays: 30, topic: undefined, isRevoked: false },
    { days: 3, validDays: 30, topic: topicNamed(filling, TOPICS.fishing.name), isRevoked: false },
    { days: 6, validDays: 30, topic: undefined, isRevoked: true },
    { days: 12, validDays: 7, topic: undefined, isRevoked: false },
  ];
  for (const { days, validDays, topic, isRevoked } of others) {
    const madeAt = end - days * DAY;
    const expiresAt = ms(madeAt + validDays * DAY);
    const before = known.find((one) => one.createdAt === ms(madeAt) && one.expiresAt === expiresAt);
    tally.note('invites', before === undefined);
    const wanted = { community: id, topic, expiresAt, actor };
    const one = before ?? unless(await createInvite(pool, wanted, ms(madeAt)), [])!.invite;
    const { inviteId } = one;
    if (isRevoked) unless(await revokeInvite(pool, { community: id, inviteId, actor }, ms(madeAt + DAY)), []);
  }
}

async function support(filling: Filling): Promise<void> {
  const { pool, community, story, tally } = filling;
  const { id } = community();
  const { end } = story.span;
  for (const place of story.supporters) {
    const holder = { community: id, pubkey: story.people[place]!.pubkey };
    const isNew = (await readMemberPlan(pool, holder, ms(end))).planId !== PLAN.planId;
    const wanted = { ...holder, planId: PLAN.planId, until: ms(end + 90 * DAY), actor: actorOf(filling) };
    if (isNew) unless(await assignPlan(pool, wanted, ms(end - 10 * DAY)), []);
    tally.note('supporters', isNew);
  }
  for (const { place, metric, at, requestId } of story.uses) {
    const counting = { community: id, pubkey: story.people[place]!.pubkey, metric, requestId, now: ms(at) };
    unless(await countUse(pool, counting), ['QUOTA_EXCEEDED']);
  }
}
