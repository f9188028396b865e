/**
 * The first set-up of a node over HTTP, with the code that the node printed at its start. Without the right
 * code, in another community, and once it is done, it answers like a path that does not exist.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Knock, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { pubkey } from '../api/schemas.js';
import type { Communities, Community } from '../communities/communities.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import { checkSetting, type SettingKey } from '../communities/rules-settings.js';
import { isRefusal } from '../events/rules/reply.js';
import { pubkeyOf } from '../node/config.js';
import { canonicalLocale, findTextProblem } from '../policies/rules.js';
import { topicId } from '../topics/rules-id.js';
import { completeSetup, isSetupCode } from './setup.sql.js';

const CODE_HEADER = 'x-setup-code';
const CODE_LENGTH_MAX = 100;
const TOPICS_MAX = 20;
const MODES = ['required', 'default', 'open'] as const;

export interface SetupOptions {
  readonly pool: Pool;
  readonly communities: Communities;
  readonly networkId: string;
  /** Operators of every community: with one, there is nothing to set up. */
  readonly adminPubkeys: readonly string[];
}

const wanted = z.strictObject({
  operator: z.string().max(200).describe('The public key of the first operator, npub or hex'),
  name: z.string().min(1).optional().describe('The name of the relay'),
  picture: z.string().optional().describe('URL of its icon'),
  topic_mode: z.enum(MODES).optional(),
  topics: z
    .array(z.string().min(1))
    .max(TOPICS_MAX)
    .default([])
    .describe('Names of the first topics; they are carried and public'),
  terms: z
    .strictObject({ title: z.string(), content: z.string(), locale: z.string().default('en') })
    .optional()
    .describe('Terms that members agree to; they become the current version 1'),
});

const answer = z.strictObject({
  name: z.string(),
  picture: z.string(),
  topic_mode: z.enum(MODES),
});

const EXPLAINED =
  'Needs the code of the link that `minato serve` prints when it starts, in the header `X-Setup-Code`. ' +
  'Without it, and once the node has or had an operator, this path does not exist (404).';

export function setupRoutes(options: SetupOptions): Route[] {
  const { pool, communities, networkId, adminPubkeys } = options;
  const guard = async ({ community, headers }: Knock): Promise<Denial | undefined> => {
    const code = headers[CODE_HEADER];
    const isPossible = community.slug === DEFAULT_SLUG && adminPubkeys.length === 0;
    if (!isPossible || typeof code !== 'string' || code.length > CODE_LENGTH_MAX) return denial('NOT_FOUND');
    return (await isSetupCode(pool, code)) ? undefined : denial('NOT_FOUND');
  };
  const shared = { url: '/setup', tags: ['setup'], who: 'public', guard, description: EXPLAINED } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      summary: 'Whether this node can be set up, and its values so far',
      response: answer,
      errors: ['NOT_FOUND'],
      handler: ({ community }) => show(community),
    }),
    route({
      ...shared,
      method: 'POST',
      summary: 'Set up this node: its first operator, name, picture, topics and terms; all or nothing',
      body: wanted,
      status: 201,
      response: answer.extend({ operator: pubkey, topics: z.array(z.string()).describe('Their ids') }),
      errors: ['NOT_FOUND', 'TOPIC_EXISTS', 'TOPIC_LIMIT_REACHED', 'POLICY_EXISTS', 'BEING_ERASED'],
      handler: async ({ community, body, now }) => {
        const checked = check(body, community, networkId);
        if ('problems' in checked) return denial('INVALID_REQUEST', checked);
        const { id, settings } = community;
        const limits = { enabledMax: settings['topic.enabledMax'] };
        const done = await completeSetup(pool, { community: id, ...checked }, limits, now);
        if (isDenial(done)) return done;
        await communities.refresh();
        const { operator, topics } = checked;
        const current = communities.get(id) ?? community;
        return { ...show(current), operator, topics: topics.map(({ topic }) => topic) };
      },
    }),
  ];
}

const show = ({ settings }: Community): z.output<typeof answer> => ({
  name: settings['relay.name'],
  picture: settings['relay.icon'],
  topic_mode: settings['topic.mode'],
});

interface Problem {
  readonly path: string;
  readonly message: string;
}

/** Checks the values before anything is written, and names every problem at once. */
function check(body: z.output<typeof wanted>, community: Community, networkId: string) {
  const problems: Problem[] = [];
  const operator = pubkeyOf(body.operator);
  if (operator === undefined) problems.push({ path: 'body/operator', message: 'must be an npub or 64 hex' });
  const given = { 'relay.name': body.name, 'relay.icon': body.picture, 'topic.mode': body.topic_mode };
  const settings = Object.entries(given).flatMap(([key, value]) => {
    if (value === undefined) return [];
    const found = checkSetting(key as SettingKey, value);
    if (!('problem' in found)) return [{ key: key as SettingKey, value: found.value }];
    problems.push({ path: `body (${key})`, message: found.problem });
    return [];
  });
  const naming = { networkId, namespace: community.settings['topic.namespace'] };
  const topics = new Map<string, string>();
  body.topics.forEach((name, at) => {
    const topic = topicId(name, naming);
    if (isRefusal(topic)) problems.push({ path: `body/topics/${at}`, message: topic.why });
    else topics.set(topic, name);
  });
  const locale = body.terms && canonicalLocale(body.terms.locale);
  const text = body.terms && findTextProblem(body.terms.title, body.terms.content);
  if (body.terms !== undefined && locale === undefined)
    problems.push({ path: 'body/terms/locale', message: 'must be a language tag (BCP 47)' });
  if (text !== undefined) problems.push({ path: 'body/terms', message: text });
  if (operator === undefined || problems.length > 0) return { problems };
  const terms = body.terms && { ...body.terms, locale: locale! };
  return { operator, settings, topics: [...topics].map(([topic, name]) => ({ topic, name })), terms };
}
