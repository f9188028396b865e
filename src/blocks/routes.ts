/**
 * What operators refuse on arrival: authors, words in contents, addresses. Changes take effect on every
 * instance within a second.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import { checkNetwork } from '../limits/rules-network.js';
import { type Block, type BlockKind, block, listBlocks, unblock } from './blocks.sql.js';
import { checkWord } from './rules-words.js';

const BLOCKS = '/admin/blocks';

export interface BlockOptions {
  readonly pool: Pool;
  /** Operators of every community, who cannot be blocked. */
  readonly adminPubkeys: readonly string[];
}

export function blockRoutes(options: BlockOptions): Route[] {
  return [
    ...authorRoutes(options),
    ...textRoutes(options, {
      kind: 'word',
      field: 'word',
      path: 'words',
      about: 'A word in any spelling; docs/blocks.md says which spellings count as the same',
      listed: 'Blocked words',
      blocks: 'Block a word: events with it in their content are refused',
      unblocks: 'Unblock a word',
      read: (text) => {
        const checked = checkWord(text);
        return 'word' in checked ? checked.word : checked;
      },
    }),
    ...textRoutes(options, {
      kind: 'address',
      field: 'network',
      path: 'addresses',
      about: 'An address or a network, such as 192.0.2.1 or 2001:db8::/32',
      listed: 'Blocked addresses and networks',
      blocks: 'Block an address or a network: its clients are refused, and their connections are closed',
      unblocks: 'Unblock an address or a network, written as it is listed',
      read: (text) => {
        const checked = checkNetwork(text);
        return 'network' in checked ? checked.network : checked;
      },
    }),
  ];
}

const tags = ['admin: blocks'] as const;
const who = 'operator';
const reason = plainText(1_000).optional();
const common = { reason: z.string().nullable(), created_at: milliseconds };

function authorRoutes({ pool, adminPubkeys }: BlockOptions): Route[] {
  const url = `${BLOCKS}/authors`;
  const params = z.strictObject({ pubkey });
  const author = z.strictObject({ pubkey, ...common });
  const show = ({ value, reason: why, createdAt }: Block) => ({
    pubkey: value,
    reason: why,
    created_at: createdAt,
  });
  const shown = (done: Block | Denial) => (isDenial(done) ? done : show(done));
  const refOf = ({
    community,
    pubkey: actor,
    params: { pubkey: value },
  }: Call<'operator', { pubkey: string }>) =>
    ({ kind: 'author', community: community.id, value, actor }) as const;
  return [
    route({
      method: 'GET',
      url,
      role: 'moderator',
      summary: 'Blocked authors',
      tags,
      who,
      query: pageQuery,
      response: pageOf(author),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listBlocks(pool, 'author', community.id, query), show),
    }),
    route({
      method: 'PUT',
      url: `${url}/:pubkey`,
      summary: 'Block an author: new events by this key are refused',
      description: 'Stored events stay. Blocking again may change the reason.',
      tags,
      who,
      params,
      body: z.strictObject({ reason }),
      response: author,
      errors: ['FIXED_OPERATOR', 'BLOCK_LIMIT_REACHED'],
      handler: async (call) =>
        shown(await block(pool, { ...refOf(call), ...call.body }, { fixed: adminPubkeys }, call.now)),
    }),
    route({
      method: 'DELETE',
      url: `${url}/:pubkey`,
      summary: 'Unblock an author',
      tags,
      who,
      params,
      response: author,
      errors: ['NOT_FOUND'],
      handler: async (call) => shown(await unblock(pool, refOf(call), call.now)),
    }),
  ];
}

/** A kind with values that are texts and do not fit into a path. */
interface TextKind<F extends string> {
  readonly kind: BlockKind;
  readonly field: F;
  readonly path: string;
  readonly about: string;
  readonly listed: string;
  readonly blocks: string;
  readonly unblocks: string;
  /** Converts the value to its canonical form, or says why it is invalid. */
  readonly read: (text: string) => string | { readonly problem: string };
}

function textRoutes<F extends 'word' | 'network'>(
  { pool, adminPubkeys }: BlockOptions,
  { kind, field, path, about, listed, blocks, unblocks, read }: TextKind<F>,
): Route[] {
  const url = `${BLOCKS}/${path}`;
  const text = plainText(1_000).min(1).describe(about);
  const item = z.strictObject({ [field]: z.string(), ...common });
  const show = ({ value, reason: why, createdAt }: Block) =>
    ({ [field]: value, reason: why, created_at: createdAt }) as z.output<typeof item>;
  const shown = (done: Block | Denial) => (isDenial(done) ? done : show(done));
  const refOf = ({ community, pubkey: actor }: Call<'operator'>, where: string, given: object) => {
    const value = read((given as Record<F, string>)[field]);
    return typeof value === 'string'
      ? { kind, community: community.id, value, actor }
      : denial('INVALID_REQUEST', { problems: [{ path: `${where}/${field}`, message: value.problem }] });
  };
  return [
    route({
      method: 'GET',
      url,
      role: 'moderator',
      summary: listed,
      tags,
      who,
      query: pageQuery,
      response: pageOf(item),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listBlocks(pool, kind, community.id, query), show),
    }),
    route({
      method: 'POST',
      url,
      summary: blocks,
      description: 'Blocking again may change the reason.',
      tags,
      who,
      body: z.strictObject({ [field]: text, reason }),
      status: 201,
      response: item,
      errors: kind === 'address' ? ['BLOCK_LIMIT_REACHED', 'OWN_ADDRESS'] : ['BLOCK_LIMIT_REACHED'],
      handler: async (call) => {
        const ref = refOf(call, 'body', call.body);
        if (isDenial(ref)) return ref;
        const { reason: why } = call.body as { reason?: string };
        const from = call.client.address;
        return shown(await block(pool, { ...ref, reason: why, from }, { fixed: adminPubkeys }, call.now));
      },
    }),
    route({
      method: 'DELETE',
      url,
      summary: unblocks,
      tags,
      who,
      query: z.strictObject({ [field]: text }),
      response: item,
      errors: ['NOT_FOUND'],
      handler: async (call) => {
        const ref = refOf(call, 'querystring', call.query);
        return isDenial(ref) ? ref : shown(await unblock(pool, ref, call.now));
      },
    }),
  ];
}
