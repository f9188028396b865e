/** The three kinds of blocks over one shape: a value, why, and since when. */
import { api, dataOf, type Page } from '../../../shared/api.js';
import { pubkeyOf } from '../../../shared/keys.js';

export const KINDS = ['authors', 'words', 'addresses'] as const;
export type Kind = (typeof KINDS)[number];

export interface Block {
  readonly value: string;
  readonly reason: string | null;
  readonly created_at: number;
}

interface Calls {
  readonly read: (cursor: string | undefined) => Promise<Page<Block>>;
  readonly block: (value: string, reason: string | undefined) => Promise<unknown>;
  readonly unblock: (value: string) => Promise<unknown>;
}

const paged = (cursor: string | undefined) => ({ query: cursor === undefined ? {} : { cursor } });
const because = (reason: string | undefined) => (reason === undefined ? {} : { reason });

interface Answer<T> {
  readonly items: readonly T[];
  readonly next_cursor: string | null;
}
interface Common {
  readonly reason: string | null;
  readonly created_at: number;
}

function shown<T extends Common>(answer: Answer<T>, read: (item: T) => unknown): Page<Block> {
  return {
    items: answer.items.map((item) => ({
      value: String(read(item)),
      reason: item.reason,
      created_at: item.created_at,
    })),
    next_cursor: answer.next_cursor,
  };
}

export const CALLS: Readonly<Record<Kind, Calls>> = {
  authors: {
    read: async (cursor) =>
      shown(
        await dataOf(api.GET('/v1/admin/blocks/authors', { params: paged(cursor) })),
        ({ pubkey }) => pubkey,
      ),
    block: (value, reason) =>
      api.PUT('/v1/admin/blocks/authors/{pubkey}', {
        params: { path: { pubkey: pubkeyOf(value) ?? value } },
        body: because(reason),
      }),
    unblock: (pubkey) => api.DELETE('/v1/admin/blocks/authors/{pubkey}', { params: { path: { pubkey } } }),
  },
  words: {
    read: async (cursor) =>
      shown(await dataOf(api.GET('/v1/admin/blocks/words', { params: paged(cursor) })), ({ word }) => word),
    block: (word, reason) => api.POST('/v1/admin/blocks/words', { body: { word, ...because(reason) } }),
    unblock: (word) => api.DELETE('/v1/admin/blocks/words', { params: { query: { word } } }),
  },
  addresses: {
    read: async (cursor) =>
      shown(
        await dataOf(api.GET('/v1/admin/blocks/addresses', { params: paged(cursor) })),
        ({ network }) => network,
      ),
    block: (network, reason) =>
      api.POST('/v1/admin/blocks/addresses', { body: { network, ...because(reason) } }),
    unblock: (network) => api.DELETE('/v1/admin/blocks/addresses', { params: { query: { network } } }),
  },
};
