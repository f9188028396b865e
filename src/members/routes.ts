/** Admin routes about people: members, roles, and invites. */
import { z } from 'zod';
import type { AdminOptions } from '../api/admin.js';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { moderatorsView } from '../events/rules/access.js';
import { parseFilter } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import { pubkeyOf } from '../node/config.js';
import { planId } from '../plans/schemas.js';
import { selectSearched } from '../search/search.sql.js';
import { topicIdText, topicIn } from '../topics/schemas.js';
import { createInvite, type Invite, listInvites, revokeInvite } from './invites.sql.js';
import { changeMember } from './members.sql.js';
import { addOperator, listOperators, type Operator, removeOperator } from './operators.sql.js';
import { MEMBER_NAME, MEMBER_NAME_WORDS, MEMBER_STATUSES } from './rules.js';
import { type Profile, profileIn, searchFor } from './rules-profile.js';
import { hasRole, ROLES, type Role } from './rules-roles.js';
import { type ListedMember, readListedMember, searchMembers } from './search.sql.js';

const MEMBERS = '/admin/members';
const OPERATORS = '/admin/operators';
const INVITES = '/admin/invites';
const PROFILES_MAX = 50;

export function memberRoutes(options: AdminOptions): Route[] {
  return [...aboutMembers(options), ...aboutOperators(options), ...aboutInvites(options)];
}

const byPubkey = z.strictObject({ pubkey });

const profile = z
  .strictObject({
    name: z.string().nullable(),
    display_name: z.string().nullable(),
    nip05: z.string().nullable().describe('As the person claims it; nobody has checked it'),
    picture: z.string().nullable().describe('An address, as text'),
    about: z.string().nullable(),
  })
  .nullable()
  .describe('The current profile (kind 0), with long texts cut; null: there is none');

const member = z.strictObject({
  pubkey,
  profile,
  status: z.enum(MEMBER_STATUSES),
  note: z.string().nullable().describe('For moderators and operators; viewers get null'),
  name: z.string().nullable().describe('The name in /.well-known/nostr.json (NIP-05)'),
  left_at: milliseconds.nullable().describe('When the member left (NIP-43)'),
  plan_id: planId,
  pending_requests: z.number().int(),
  active_subscriptions: z.number().int(),
  paused_subscriptions: z.number().int(),
  created_at: milliseconds,
  updated_at: milliseconds,
});

const memberName = z.string().regex(MEMBER_NAME, MEMBER_NAME_WORDS);

const decision = z
  .strictObject({
    status: z.enum(MEMBER_STATUSES).optional(),
    note: plainText(1_000).nullable().optional().describe('null removes it'),
    name: memberName.nullable().optional().describe('NIP-05: a-z, 0-9, - _ and .; null removes it'),
  })
  .refine(({ status, note, name }) => status !== undefined || note !== undefined || name !== undefined, {
    error: 'set at least one of status, note and name',
  });

function showProfile(one: Profile | null): z.output<typeof profile> {
  if (one === null) return null;
  const { name, displayName, nip05, picture, about } = one;
  return { name, display_name: displayName, nip05, picture, about };
}

function showMember(one: ListedMember, role: Role): z.output<typeof member> {
  return {
    pubkey: one.pubkey,
    profile: showProfile(profileIn(one.payload)),
    status: one.status,
    note: hasRole(role, 'moderator') ? one.note : null,
    name: one.name,
    left_at: one.leftAt,
    plan_id: one.plan,
    pending_requests: one.pending,
    active_subscriptions: one.active,
    paused_subscriptions: one.paused,
    created_at: one.createdAt,
    updated_at: one.updatedAt,
  };
}

function aboutMembers(options: AdminOptions): Route[] {
  const { pool, adminPubkeys } = options;
  const { stored } = options.events;
  const tags = ['admin: members'] as const;
  return [
    route({
      method: 'GET',
      url: MEMBERS,
      summary: 'Members, by key or newest first, and searched',
      description:
        '`q` is a part of a name (of the profile, or NIP-05), an npub, the first 4 or more characters of ' +
        'a hex key, or for moderators and operators a part of a note. Upper and lower case are the same. ' +
        'Where events are in DynamoDB, names of profiles are found by whole words.',
      tags,
      who: 'operator',
      role: 'viewer',
      query: pageQuery.extend({
        status: z.enum(MEMBER_STATUSES).optional(),
        q: plainText(200).optional().describe('What to search for'),
        order: z.enum(['key', 'newest']).default('key'),
      }),
      response: pageOf(member),
      errors: ['SEARCH_NOT_READY'],
      handler: async ({ community, role, query: { status, q, order, ...page }, now }) => {
        const search = q === undefined ? undefined : searchFor(q, pubkeyOf);
        const seesNotes = hasRole(role, 'moderator');
        const named = stored.inDatabase || q === undefined ? [] : await keysNamed(options, community, q, now);
        if (isDenial(named)) return named;
        const own = { events: stored, named, community: community.id };
        const choice = { ...own, status, search, seesNotes, order, now };
        return showPage(await searchMembers(pool, choice, page), (one) => showMember(one, role));
      },
    }),
    route({
      method: 'GET',
      url: `${MEMBERS}/:pubkey`,
      summary: 'One member',
      tags,
      who: 'operator',
      role: 'viewer',
      params: byPubkey,
      response: member,
      errors: ['NOT_FOUND'],
      handler: async ({ community, role, params, now }) => {
        const found = await readListedMember(pool, stored, { community: community.id, ...params }, now);
        return found === undefined ? denial('NOT_FOUND') : showMember(found, role);
      },
    }),
    route({
      method: 'GET',
      url: '/admin/profiles',
      summary: 'The profiles of keys, members or not',
      tags,
      who: 'operator',
      role: 'viewer',
      query: z.strictObject({
        pubkeys: z
          .string()
          .transform((list) => list.split(','))
          .pipe(z.array(pubkey).min(1).max(PROFILES_MAX))
          .describe(`Public keys in hex, separated by commas, at most ${PROFILES_MAX}`),
      }),
      response: z.strictObject({ items: z.array(z.strictObject({ pubkey, profile })) }),
      errors: [],
      handler: async ({ community, query: { pubkeys }, now }) => {
        const found = await stored.profiles(pool, { community: community.id, pubkeys, now });
        return {
          items: [...new Set(pubkeys)].sort().map((key) => ({
            pubkey: key,
            profile: showProfile(profileIn(found.get(key) ?? null)),
          })),
        };
      },
    }),
    route({
      method: 'PATCH',
      url: `${MEMBERS}/:pubkey`,
      summary: 'Change the status, note or name of a member',
      description:
        'Works also for a key that has requested nothing yet. A disabled member can neither post nor ' +
        'request topics, and the subscriptions are paused. A deleted account loses its subscriptions and ' +
        'open requests and stays deleted. A name is served under the host name of the community.',
      tags,
      who: 'operator',
      params: byPubkey,
      body: decision,
      response: member,
      errors: ['STATUS_CONFLICT', 'FIXED_OPERATOR', 'NAME_TAKEN'],
      handler: async ({ community, pubkey: actor, role, params, body, now }) => {
        const change = { community: community.id, pubkey: params.pubkey, ...body, actor };
        const changed = await changeMember(pool, change, { fixed: adminPubkeys }, now);
        if (isDenial(changed)) return changed;
        const after = await readListedMember(pool, stored, { community: community.id, ...params }, now);
        // An erasure came in between: trying again says so.
        return after === undefined ? denial('UNAVAILABLE') : showMember(after, role);
      },
    }),
  ];
}

/** Profiles that a search of members looks at, where the database does not have them. */
const NAMED_MAX = 500;

/** Keys whose profile has these words, by the search index. */
async function keysNamed(
  { pool, search, events: { stored } }: AdminOptions,
  community: Community,
  text: string,
  now: number,
): Promise<string[] | Denial> {
  const filter = parseFilter({ search: text, kinds: [0] }, community.settings);
  if (isRefusal(filter) || filter.search === undefined) return [];
  const seen = { ...filter, view: moderatorsView(community) };
  const found = await selectSearched(search, community, seen, NAMED_MAX, now);
  if (isDenial(found)) return found;
  const refs = found.ids.map((id) => ({ community: community.id, id }));
  return [...(await stored.known(pool, refs)).values()].map(({ author }) => author);
}

const role = z.enum(ROLES);
const operator = z.strictObject({
  pubkey,
  role,
  added_by: pubkey.nullable().describe('Null: the command line on the node itself'),
  created_at: milliseconds,
});

function showOperator(one: Operator): z.output<typeof operator> {
  const { pubkey: key, role: given, addedBy, createdAt } = one;
  return { pubkey: key, role: given, added_by: addedBy, created_at: createdAt };
}

function aboutOperators({ pool, adminPubkeys }: AdminOptions): Route[] {
  const tags = ['admin: operators'] as const;
  const rules = { fixed: adminPubkeys };
  return [
    route({
      method: 'GET',
      url: OPERATORS,
      summary: 'Who has a role here, by key, and fixed operators',
      tags,
      who: 'operator',
      role: 'viewer',
      query: pageQuery,
      response: pageOf(operator).extend({
        fixed: z.array(pubkey).describe('The keys of MINATO_ADMIN_PUBKEYS, operators of every community'),
      }),
      errors: [],
      handler: async ({ community, query }) => {
        const page = showPage(await listOperators(pool, community.id, query), showOperator);
        return isDenial(page) ? page : { ...page, fixed: [...adminPubkeys] };
      },
    }),
    route({
      method: 'PUT',
      url: `${OPERATORS}/:pubkey`,
      summary: 'Give a key a role, or change its role; takes effect at once on every instance',
      description:
        'Without `role` a new key becomes an operator, and a key that has a role keeps it. ' +
        'Open streams that the new role may not read end within seconds.',
      tags,
      who: 'operator',
      params: byPubkey,
      body: z.strictObject({ role: role.optional() }),
      response: operator,
      errors: ['FIXED_OPERATOR'],
      handler: async ({ community, pubkey: actor, params, body, now }) => {
        const who = { community: community.id, pubkey: params.pubkey, actor, ...body };
        const added = await addOperator(pool, who, rules, now);
        return isDenial(added) ? added : showOperator(added);
      },
    }),
    route({
      method: 'DELETE',
      url: `${OPERATORS}/:pubkey`,
      summary: 'Take the role of a key away; takes effect at once on every instance',
      tags,
      who: 'operator',
      params: byPubkey,
      response: operator,
      errors: ['NOT_FOUND', 'FIXED_OPERATOR'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const who = { community: community.id, pubkey: params.pubkey, actor };
        const removed = await removeOperator(pool, who, rules, now);
        return isDenial(removed) ? removed : showOperator(removed);
      },
    }),
  ];
}

const invite = z.strictObject({
  invite_id: z.uuid(),
  topic_id: topicIdText.nullable().describe('The only topic that it is valid for; null: any topic'),
  created_by: pubkey.nullable(),
  created_at: milliseconds,
  expires_at: milliseconds,
  revoked_at: milliseconds.nullable(),
  used_by: pubkey.nullable(),
  used_at: milliseconds.nullable(),
});

function showInvite(one: Invite): z.output<typeof invite> {
  return {
    invite_id: one.inviteId,
    topic_id: one.topic,
    created_by: one.createdBy,
    created_at: one.createdAt,
    expires_at: one.expiresAt,
    revoked_at: one.revokedAt,
    used_by: one.usedBy,
    used_at: one.usedAt,
  };
}

function aboutInvites({ pool }: AdminOptions): Route[] {
  const tags = ['admin: invites'] as const;
  return [
    route({
      method: 'GET',
      url: INVITES,
      summary: 'Invites, newest first, without their codes',
      tags,
      who: 'operator',
      role: 'viewer',
      query: pageQuery,
      response: pageOf(invite),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listInvites(pool, community.id, query), showInvite),
    }),
    route({
      method: 'POST',
      url: INVITES,
      summary: 'Make an invite: a request with its code is approved at once',
      description:
        'It works while the setting subscription.autoApproval is "invite". ' +
        'Only this response shows the code.',
      tags,
      who: 'operator',
      body: z.strictObject({
        topic_id: topicIdText.optional().describe('The only topic that it is valid for; default: any topic'),
        expires_at: milliseconds,
      }),
      status: 201,
      response: z.strictObject({ invite, code: z.string() }),
      errors: ['INVALID_TOPIC'],
      handler: async ({ community, pubkey: actor, body: { topic_id, expires_at }, now }) => {
        const topic = topic_id === undefined ? undefined : topicIn(community, topic_id);
        if (isDenial(topic)) return topic;
        const wanted = { community: community.id, topic, expiresAt: expires_at, actor };
        const made = await createInvite(pool, wanted, now);
        return isDenial(made) ? made : { invite: showInvite(made.invite), code: made.code };
      },
    }),
    route({
      method: 'DELETE',
      url: `${INVITES}/:invite_id`,
      summary: 'Revoke an invite that was not used yet; revoking twice changes nothing',
      tags,
      who: 'operator',
      params: z.strictObject({ invite_id: z.uuid() }),
      response: invite,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: actor, params: { invite_id }, now }) => {
        const revoked = await revokeInvite(
          pool,
          { community: community.id, inviteId: invite_id, actor },
          now,
        );
        return isDenial(revoked) ? revoked : showInvite(revoked);
      },
    }),
  ];
}
