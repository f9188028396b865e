/** The texts that members agree to, readable by everyone. Drafts are at the admin routes only. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import { type PolicyVersion, readCurrentPolicies, readPolicy, readText } from './policies.sql.js';
import { bestLocale, canonicalLocale, LOCALE_LENGTH_MAX, POLICY_TYPES, POLICY_VERSION } from './rules.js';

const TAGS = ['policies'] as const;

export const policyType = z.enum(POLICY_TYPES);
export const policyVersion = z
  .string()
  .regex(POLICY_VERSION, 'letters, digits, dots, dashes and underscores')
  .describe('A version, such as 2026-04');
/** Accepts any spelling of a tag and converts it to the canonical one. */
export const locale = z
  .string()
  .max(LOCALE_LENGTH_MAX)
  .refine((tag) => canonicalLocale(tag) !== undefined, 'a BCP 47 tag, such as en or pt-BR')
  .overwrite((tag) => canonicalLocale(tag) ?? tag)
  .describe('A language, as a BCP 47 tag');
export const contentHash = z
  .string()
  .regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters')
  .describe('SHA-256 of the content as UTF-8, hex');
export const byVersion = z.strictObject({ type: policyType, version: policyVersion });

const wanted = z.strictObject({
  locale: locale
    .optional()
    .describe('Preferred language; falls back to a similar one, then to the oldest text'),
});

const policy = z.strictObject({
  type: policyType,
  version: z.string(),
  status: z.enum(['published', 'current']),
  locale: z.string().describe('The language of this text'),
  locales: z.array(z.string()).describe('All available languages'),
  title: z.string(),
  content: z.string(),
  content_hash: contentHash,
  published_at: milliseconds,
  current_at: milliseconds.nullable(),
});

export function policyRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/policies/current',
      summary: 'The current version of each type',
      tags: TAGS,
      who: 'public',
      query: wanted,
      response: z.strictObject({ items: z.array(policy) }),
      errors: [],
      handler: async ({ community, query }) => {
        const items = [];
        for (const current of await readCurrentPolicies(pool, community.id)) {
          const shown = await show(pool, community.id, current, query.locale);
          if (!isDenial(shown)) items.push(shown);
        }
        return { items };
      },
    }),
    route({
      method: 'GET',
      url: '/policies/:type/:version',
      summary: 'One published version, current or not',
      tags: TAGS,
      who: 'public',
      params: byVersion,
      query: wanted,
      response: policy,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params, query }) => {
        const found = await readPolicy(pool, community.id, params);
        return found === undefined ? denial('NOT_FOUND') : show(pool, community.id, found, query.locale);
      },
    }),
  ];
}

async function show(
  pool: Pool,
  community: number,
  found: PolicyVersion,
  wanted: string | undefined,
): Promise<z.output<typeof policy> | Denial> {
  const { type, version, status, publishedAt, currentAt } = found;
  const locales = found.texts.map((text) => text.locale);
  const chosen = bestLocale(locales, wanted);
  if (status === 'draft' || publishedAt === null || chosen === undefined) return denial('NOT_FOUND');
  const text = await readText(pool, community, found, chosen);
  if (text === undefined) return denial('NOT_FOUND');
  return {
    type,
    version,
    status,
    locale: chosen,
    locales,
    title: text.title,
    content: text.content,
    content_hash: text.contentHash,
    published_at: publishedAt,
    current_at: currentAt,
  };
}
