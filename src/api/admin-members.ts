/** Operators decide about people: members, other operators, and whom an invite lets in. */
import { z } from 'zod';
import { denial, isDenial } from '../core/errors.js';
import { MEMBER_NAME, MEMBER_NAME_WORDS, MEMBER_STATUSES } from '../core/membership.js';
import { createInvite, type Invite, listInvites, revokeInvite } from '../store/invites.js';
import { changeMember, listMembers, type Member, readMember } from '../store/members.js';
import { addOperator, listOperators, type Operator, removeOperator } from '../store/operators.js';
import type { AdminOptions } from './admin.js';
import { type Route, route } from './contract.js';
import {
  milliseconds,
  pageOf,
  pageQuery,
  plainText,
  pubkey,
  showPage,
  topicIdText,
  topicIn,
} from './schemas.js';

const MEMBERS = '/admin/members';
const OPERATORS = '/admin/operators';
const INVITES = '/admin/invites';

export function memberRoutes(options: AdminOptions): Route[] {
  return [...aboutMembers(options), ...aboutOperators(options), ...aboutInvites(options)];
}

const byPubkey = z.strictObject({ pubkey });

const member = z.strictObject({
  pubkey,
  status: z.enum(MEMBER_STATUSES),
  note: z.string().nullable().describe('For operators only'),
  name: z.string().nullable().describe('By which /.well-known/nostr.json finds the key (NIP-05)'),
  left_at: milliseconds.nullable().describe('When the member left (NIP-43)'),
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
    note: plainText(1_000).nullable().optional().describe('null takes it away'),
    name: memberName.nullable().optional().describe('NIP-05: a-z, 0-9, - _ and .; null takes it away'),
  })
  .refine(({ status, note, name }) => status !== undefined || note !== undefined || name !== undefined, {
    error: 'status, note or name, or several of them',
  });

function showMember(one: Member): z.output<typeof member> {
  return {
    pubkey: one.pubkey,
    status: one.status,
    note: one.note,
    name: one.name,
    left_at: one.leftAt,
    pending_requests: one.pending,
    active_subscriptions: one.active,
    paused_subscriptions: one.paused,
    created_at: one.createdAt,
    updated_at: one.updatedAt,
  };
}

function aboutMembers({ pool, adminPubkeys }: AdminOptions): Route[] {
  const tags = ['admin: members'] as const;
  return [
    route({
      method: 'GET',
      url: MEMBERS,
      summary: 'Members, by key',
      tags,
      who: 'operator',
      query: pageQuery.extend({ status: z.enum(MEMBER_STATUSES).optional() }),
      response: pageOf(member),
      errors: [],
      handler: async ({ community, query: { status, ...page } }) =>
        showPage(await listMembers(pool, { community: community.id, status }, page), showMember),
    }),
    route({
      method: 'GET',
      url: `${MEMBERS}/:pubkey`,
      summary: 'One member',
      tags,
      who: 'operator',
      params: byPubkey,
      response: member,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params }) => {
        const found = await readMember(pool, community.id, params.pubkey);
        return found === undefined ? denial('NOT_FOUND') : showMember(found);
      },
    }),
    route({
      method: 'PATCH',
      url: `${MEMBERS}/:pubkey`,
      summary: 'Disable, enable or delete a member, give a name, or note something',
      description: `Also for a key that has asked for nothing yet. Who is disabled neither posts nor asks, and the subscriptions wait.
A deleted account has lost them and its open requests, and stays deleted. A name is found under the host name of the community.`,
      tags,
      who: 'operator',
      params: byPubkey,
      body: decision,
      response: member,
      errors: ['STATUS_CONFLICT', 'FIXED_OPERATOR', 'NAME_TAKEN'],
      handler: async ({ community, pubkey: actor, params, body, now }) => {
        const change = { community: community.id, pubkey: params.pubkey, ...body, actor };
        const changed = await changeMember(pool, change, { fixed: adminPubkeys }, now);
        return isDenial(changed) ? changed : showMember(changed);
      },
    }),
  ];
}

const operator = z.strictObject({
  pubkey,
  added_by: pubkey.nullable().describe('Null: the command line on the machine of the node'),
  created_at: milliseconds,
});

function showOperator({ pubkey: key, addedBy, createdAt }: Operator): z.output<typeof operator> {
  return { pubkey: key, added_by: addedBy, created_at: createdAt };
}

function aboutOperators({ pool, adminPubkeys }: AdminOptions): Route[] {
  const tags = ['admin: operators'] as const;
  const rules = { fixed: adminPubkeys };
  return [
    route({
      method: 'GET',
      url: OPERATORS,
      summary: 'Operators that were added, by key, and those that are fixed',
      tags,
      who: 'operator',
      query: pageQuery,
      response: pageOf(operator).extend({
        fixed: z.array(pubkey).describe('Those of MINATO_ADMIN_PUBKEYS, who run every community'),
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
      summary: 'Make somebody an operator; doing it again changes nothing',
      tags,
      who: 'operator',
      params: byPubkey,
      response: operator,
      errors: ['FIXED_OPERATOR'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const who = { community: community.id, pubkey: params.pubkey, actor };
        const added = await addOperator(pool, who, rules, now);
        return isDenial(added) ? added : showOperator(added);
      },
    }),
    route({
      method: 'DELETE',
      url: `${OPERATORS}/:pubkey`,
      summary: 'Make an operator one no longer; on every instance within a second',
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
  topic_id: topicIdText.nullable().describe('The only topic that it is good for; null: any'),
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
      summary: 'Invites, the newest first, without their codes',
      tags,
      who: 'operator',
      query: pageQuery,
      response: pageOf(invite),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listInvites(pool, community.id, query), showInvite),
    }),
    route({
      method: 'POST',
      url: INVITES,
      summary: 'Make an invite: one request with its code is approved at once',
      description:
        'It does so while the setting subscription.autoApproval is "invite". The code is in this answer only.',
      tags,
      who: 'operator',
      body: z.strictObject({
        topic_id: topicIdText.optional().describe('The only topic that it is good for; any without it'),
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
      summary: 'Revoke an invite that is not used yet; doing it again changes nothing',
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
