/**
 * Posts as they stand on the node: the newest first, or one conversation, with live updates, older pages, and
 * deletions by their authors. A refusal is tried again after some seconds, because an approval or a consent takes effect at once.
 */
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useCallback, useEffect, useRef, useState } from 'react';
import { type Filter, relay } from './relay.js';
import { useMember } from './session.js';

export const POST_KINDS = [1, 11, 1_111, 30_023];
const PAGE = 40;
const THREAD_MAX = 500;
const RETRY_MS = 3_000;

export interface Feed {
  readonly posts: readonly VerifiedEvent[];
  readonly isLoading: boolean;
  /** Why the node shows nothing. */
  readonly refusal: string | undefined;
  readonly hasOlder: boolean;
  readonly isLoadingOlder: boolean;
  readonly loadOlder: () => void;
}

const newestFirst = (a: VerifiedEvent, b: VerifiedEvent) =>
  b.created_at - a.created_at || (a.id < b.id ? -1 : 1);

/** A conversation: its first post, and all answers that name it (NIP-10, NIP-22). */
function threadFilters(root: string): Filter[] {
  const answers = { kinds: POST_KINDS, limit: THREAD_MAX };
  return [{ ids: [root] }, { ...answers, '#e': [root] }, { ...answers, '#E': [root] }];
}

/**
 * The posts of a topic, or without one the posts of every topic that the reader may read. With `root` only
 * those of one conversation.
 */
export function useFeed(topic: string | undefined, root?: string): Feed {
  const member = useMember();
  const reader = member?.pubkey;
  const known = useRef(new Map<string, VerifiedEvent>());
  const [posts, setPosts] = useState<readonly VerifiedEvent[]>([]);
  const [isLoading, setLoading] = useState(true);
  const [refusal, setRefusal] = useState<string>();
  const [hasOlder, setHasOlder] = useState(false);
  const [isLoadingOlder, setLoadingOlder] = useState(false);
  const [round, setRound] = useState(0);

  const show = useCallback(() => setPosts([...known.current.values()].sort(newestFirst)), []);

  // Another reader, or another try, reads it again.
  useEffect(() => {
    known.current = new Map();
    let isStored = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const of: Filter = topic === undefined ? {} : { '#t': [topic] };
    const since = Math.floor(Date.now() / 1_000);
    const wanted = root === undefined ? [{ kinds: POST_KINDS, limit: PAGE }] : threadFilters(root);
    const filters: Filter[] = wanted.map((filter) => ({ ...of, ...filter }));
    if (topic !== undefined) filters.push({ ...of, kinds: [5], since, limit: 1 });
    const close = relay.subscribe(filters, {
      onEvent: (event) => {
        if (event.kind === 5) remove(known.current, event);
        else known.current.set(event.id, event);
        if (isStored) show();
      },
      onStored: () => {
        isStored = true;
        setHasOlder(root === undefined && known.current.size >= PAGE);
        setRefusal(undefined);
        setLoading(false);
        show();
      },
      onRefused: (reason) => {
        setRefusal(reason);
        setLoading(false);
        known.current = new Map();
        show();
        timer = setTimeout(() => setRound((count) => count + 1), RETRY_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      close();
    };
  }, [topic, root, reader, round, show]);

  const loadOlder = useCallback(async () => {
    const last = [...known.current.values()].sort(newestFirst).at(-1);
    if (last === undefined) return;
    setLoadingOlder(true);
    const of: Filter = topic === undefined ? {} : { '#t': [topic] };
    const older = await relay.query([{ ...of, kinds: POST_KINDS, until: last.created_at, limit: PAGE }]);
    const isNew = older.filter(({ id }) => !known.current.has(id));
    for (const event of isNew) known.current.set(event.id, event);
    setHasOlder(isNew.length > 0 && older.length >= PAGE);
    setLoadingOlder(false);
    show();
  }, [topic, show]);

  return { posts, isLoading, refusal, hasOlder, isLoadingOlder, loadOlder: () => void loadOlder() };
}

/** NIP-09: only what the author of the request wrote. */
function remove(posts: Map<string, VerifiedEvent>, { pubkey, tags }: VerifiedEvent): void {
  for (const [name, id] of tags)
    if (name === 'e' && id !== undefined && posts.get(id)?.pubkey === pubkey) posts.delete(id);
}

/** NIP-10: the post that is answered is marked `reply`, or `root` for a direct answer; else the last one. */
export function parentOf({ kind, tags }: VerifiedEvent): string | undefined {
  if (kind !== 1 && kind !== 1_111) return undefined;
  const named = tags.filter(([name]) => name === 'e');
  const marked = (mark: string) => named.find((tag) => tag[3] === mark)?.[1];
  return marked('reply') ?? marked('root') ?? named.at(-1)?.[1];
}

/** The first post of the conversation: NIP-22 has it in `E`, NIP-10 marks it `root` or names it first. */
export function rootOf(post: VerifiedEvent): string {
  if (parentOf(post) === undefined) return post.id;
  const named = post.tags.filter(([name]) => name === 'e');
  const [, root] =
    post.tags.find(([name]) => name === 'E') ?? named.find((tag) => tag[3] === 'root') ?? named[0] ?? [];
  return root ?? post.id;
}
