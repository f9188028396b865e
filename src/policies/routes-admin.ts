/** Operators write, publish and activate the texts that members agree to, and see who has agreed. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from '../api/schemas.js';
import { listConsents } from './consents.sql.js';
import {
  createPolicy,
  deletePolicy,
  deleteText,
  listPolicies,
  makeCurrent,
  type PolicyChange,
  type PolicyText,
  type PolicyVersion,
  publishPolicy,
  readPolicy,
  readText,
  type TextHead,
  writeText,
} from './policies.sql.js';
import { byVersion, contentHash, locale, policyType, policyVersion } from './routes.js';
import { consent, showConsent } from './routes-consents.js';
import { findTextProblem, POLICY_STATUSES } from './rules.js';

const POLICIES = '/admin/policies';
const ONE = `${POLICIES}/:type/:version`;
const TEXT = `${ONE}/texts/:locale`;
const TAGS = ['admin: policies'] as const;
/** Enough for a long text in a script with three bytes per character. */
const BODY_BYTES_MAX = 1_048_576;

const head = z.strictObject({
  locale: z.string(),
  title: z.string(),
  content_hash: contentHash,
  updated_at: milliseconds,
});
const text = head.extend({ content: z.string() });
const version = z.strictObject({
  type: policyType,
  version: z.string(),
  status: z.enum(POLICY_STATUSES),
  created_at: milliseconds,
  published_at: milliseconds.nullable(),
  current_at: milliseconds.nullable().describe('When it last became current'),
  texts: z.array(head),
});
const byLocale = byVersion.extend({ locale });

function showHead(one: TextHead): z.output<typeof head> {
  const { title, contentHash: hash, updatedAt } = one;
  return { locale: one.locale, title, content_hash: hash, updated_at: updatedAt };
}

function showText(one: PolicyText): z.output<typeof text> {
  return { ...showHead(one), content: one.content };
}

function showVersion(one: PolicyVersion): z.output<typeof version> {
  return {
    type: one.type,
    version: one.version,
    status: one.status,
    created_at: one.createdAt,
    published_at: one.publishedAt,
    current_at: one.currentAt,
    texts: one.texts.map(showHead),
  };
}

export function policyAdminRoutes(options: { readonly pool: Pool }): Route[] {
  return [
    ...readingRoutes(options),
    ...versionRoutes(options),
    ...textRoutes(options),
    consentsRoute(options),
  ];
}

function readingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: POLICIES,
      role: 'viewer',
      summary: 'All versions with their languages, including drafts, newest first',
      tags: TAGS,
      who: 'operator',
      query: pageQuery,
      response: pageOf(version),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listPolicies(pool, community.id, query), showVersion),
    }),
    route({
      method: 'GET',
      url: ONE,
      role: 'viewer',
      summary: 'One version with its languages',
      tags: TAGS,
      who: 'operator',
      params: byVersion,
      response: version,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params }) => {
        const found = await readPolicy(pool, community.id, params);
        return found === undefined ? denial('NOT_FOUND') : showVersion(found);
      },
    }),
    route({
      method: 'GET',
      url: TEXT,
      role: 'viewer',
      summary: 'One text, also of a draft',
      tags: TAGS,
      who: 'operator',
      params: byLocale,
      response: text,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params }) => {
        const found = await readText(pool, community.id, params, params.locale);
        return found === undefined ? denial('NOT_FOUND') : showText(found);
      },
    }),
  ];
}

function versionRoutes({ pool }: { readonly pool: Pool }): Route[] {
  type Act = (pool: Pool, ref: PolicyChange, now: number) => Promise<PolicyVersion | Denial>;
  type Described = Pick<Route, 'method' | 'url' | 'summary' | 'errors'>;
  const acting = (described: Described, act: Act): Route =>
    route({
      ...described,
      tags: TAGS,
      who: 'operator',
      params: byVersion,
      response: version,
      handler: async ({ community, pubkey: actor, params, now }) => {
        const done = await act(pool, { ...params, community: community.id, actor }, now);
        return isDenial(done) ? done : showVersion(done);
      },
    });
  return [
    route({
      method: 'POST',
      url: POLICIES,
      summary: 'Create a version as a draft without texts',
      tags: TAGS,
      who: 'operator',
      body: z.strictObject({ type: policyType, version: policyVersion }),
      status: 201,
      response: version,
      errors: ['POLICY_EXISTS'],
      handler: async ({ community, pubkey: actor, body, now }) => {
        const made = await createPolicy(pool, { ...body, community: community.id, actor }, now);
        return isDenial(made) ? made : showVersion(made);
      },
    }),
    acting(
      {
        method: 'DELETE',
        url: ONE,
        summary: 'Delete a draft with its texts',
        errors: ['NOT_FOUND', 'POLICY_PUBLISHED'],
      },
      deletePolicy,
    ),
    acting(
      {
        method: 'POST',
        url: `${ONE}/publish`,
        summary: 'Publish a draft: everyone may read it, and its texts can no longer change',
        errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      },
      publishPolicy,
    ),
    acting(
      {
        method: 'POST',
        url: `${ONE}/make-current`,
        summary: 'Require consent to this version from now on; the previous one becomes "published"',
        errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      },
      makeCurrent,
    ),
  ];
}

function textRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'PUT',
      url: TEXT,
      summary: 'Write a text of a draft, or add a language to a published version',
      description:
        'Adding a language does not require new consents. Writing the same text twice changes nothing.',
      tags: TAGS,
      who: 'operator',
      params: byLocale,
      bodyBytesMax: BODY_BYTES_MAX,
      body: z.strictObject({ title: z.string(), content: z.string() }),
      response: text,
      errors: ['NOT_FOUND', 'POLICY_PUBLISHED', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: actor, params, body, now }) => {
        const message = findTextProblem(body.title, body.content);
        if (message !== undefined)
          return denial('INVALID_REQUEST', { problems: [{ path: 'body', message }] });
        const written = await writeText(pool, { ...params, community: community.id, actor }, body, now);
        return isDenial(written) ? written : showText(written);
      },
    }),
    route({
      method: 'DELETE',
      url: TEXT,
      summary: 'Delete a text of a draft',
      tags: TAGS,
      who: 'operator',
      params: byLocale,
      response: head,
      errors: ['NOT_FOUND', 'POLICY_PUBLISHED'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const removed = await deleteText(pool, { ...params, community: community.id, actor }, now);
        return isDenial(removed) ? removed : showHead(removed);
      },
    }),
  ];
}

function consentsRoute({ pool }: { readonly pool: Pool }): Route {
  const given = consent.extend({ pubkey });
  return route({
    method: 'GET',
    url: '/admin/consents',
    role: 'viewer',
    summary: 'Consents of all members or of one, including withdrawn ones, newest first',
    tags: TAGS,
    who: 'operator',
    query: pageQuery.extend({
      pubkey: pubkey.optional(),
      type: policyType.optional(),
      version: policyVersion.optional(),
    }),
    response: pageOf(given),
    errors: [],
    handler: async ({ community, query: { pubkey: by, type, version: ofVersion, ...page } }) => {
      const which = { community: community.id, pubkey: by, type, version: ofVersion };
      return showPage(await listConsents(pool, which, page), (one) => ({
        ...showConsent(one),
        pubkey: one.pubkey,
      }));
    },
  });
}
