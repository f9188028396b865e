/**
 * A member sees which policies are current, agrees to them, and may withdraw a consent. A member sees only
 * their own consents (I13).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, showPage } from '../api/schemas.js';
import {
  type Consent,
  giveConsent,
  listConsentsOf,
  type Required,
  readRequired,
  withdrawConsent,
} from './consents.sql.js';
import { contentHash, locale, policyType, policyVersion } from './routes.js';

const CONSENTS = '/consents';
const TAGS = ['consents'] as const;

export const consent = z.strictObject({
  consent_id: z.uuid(),
  type: policyType,
  version: z.string(),
  locale: z.string().describe('The language in which it was read'),
  content_hash: contentHash,
  consented_at: milliseconds,
  withdrawn_at: milliseconds.nullable(),
});

export function showConsent(one: Consent): z.output<typeof consent> {
  return {
    consent_id: one.consentId,
    type: one.type,
    version: one.version,
    locale: one.locale,
    content_hash: one.contentHash,
    consented_at: one.consentedAt,
    withdrawn_at: one.withdrawnAt,
  };
}

const required = z.strictObject({
  type: policyType,
  version: z.string(),
  locales: z.array(z.string()),
  consented: z.boolean(),
  consent_id: z.uuid().optional(),
  consented_at: milliseconds.optional(),
});

function showRequired({ type, version, locales, consentId, consentedAt }: Required) {
  const policy = { type, version, locales: [...locales], consented: consentId !== null };
  if (consentId === null || consentedAt === null) return policy;
  return { ...policy, consent_id: consentId, consented_at: consentedAt };
}

export function consentRoutes(options: { readonly pool: Pool }): Route[] {
  return [...readingRoutes(options), ...changingRoutes(options)];
}

function readingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: `${CONSENTS}/status`,
      summary: 'The current policies, and whether you have agreed to them',
      description:
        'Consent in one language is enough. In a community without required authentication, ' +
        'nothing is refused without consent.',
      tags: TAGS,
      who: 'member',
      response: z.strictObject({
        required: z.array(required),
        complete: z.boolean().describe('True when you have agreed to everything'),
      }),
      errors: [],
      handler: async ({ community, pubkey }) => {
        const required = (await readRequired(pool, community.id, pubkey)).map(showRequired);
        return { required, complete: required.every(({ consented }) => consented) };
      },
    }),
    route({
      method: 'GET',
      url: CONSENTS,
      summary: 'Your consents, including withdrawn ones, newest first',
      tags: TAGS,
      who: 'member',
      query: pageQuery,
      response: pageOf(consent),
      errors: [],
      handler: async ({ community, pubkey, query }) =>
        showPage(await listConsentsOf(pool, { community: community.id, pubkey }, query), showConsent),
    }),
  ];
}

function changingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'POST',
      url: CONSENTS,
      summary: 'Agree to a current version',
      description:
        'Send the `content_hash` of the text that you showed; a different text gives VERSION_MISMATCH. ' +
        'Agreeing twice, in any language, returns the existing consent.',
      tags: TAGS,
      who: 'member',
      body: z.strictObject({
        type: policyType,
        version: policyVersion,
        locale,
        content_hash: contentHash.optional(),
      }),
      status: 201,
      response: consent,
      errors: ['NOT_FOUND', 'POLICY_NOT_CURRENT', 'VERSION_MISMATCH'],
      handler: async ({ community, pubkey, body: { content_hash, ...text }, now }) => {
        const wanted = { ...text, community: community.id, pubkey, contentHash: content_hash };
        const given = await giveConsent(pool, wanted, now);
        return isDenial(given) ? given : showConsent(given);
      },
    }),
    route({
      method: 'POST',
      url: `${CONSENTS}/:consent_id/withdraw`,
      summary: 'Withdraw a consent; withdrawing twice changes nothing',
      description: 'With required authentication, everything that needs consent is refused within a second.',
      tags: TAGS,
      who: 'member',
      params: z.strictObject({ consent_id: z.uuid() }),
      response: consent,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey, params: { consent_id }, now }) => {
        const ref = { community: community.id, pubkey, consentId: consent_id };
        const withdrawn = await withdrawConsent(pool, ref, now);
        return isDenial(withdrawn) ? withdrawn : showConsent(withdrawn);
      },
    }),
  ];
}
