/** A remote signer (NIP-46) that signs everything, over one relay, made with nostr-tools. */
import * as nip44 from 'nostr-tools/nip44';
import { SimplePool } from 'nostr-tools/pool';
import { finalizeEvent } from 'nostr-tools/pure';
import { type Author, newAuthor, sign } from '../events.js';

const KIND = 24_133;

export interface Bunker {
  /** `bunker://…` */
  readonly address: string;
  close(): void;
}

interface Request {
  readonly id: string;
  readonly method: string;
  readonly params: readonly string[];
}

export async function startBunker(relay: string, member: Author): Promise<Bunker> {
  const own = newAuthor();
  const pool = new SimplePool();
  pool.automaticallyAuth = () => async (draft) => finalizeEvent(draft, own.secret);
  const answer = ({ method, params }: Request): string => {
    if (method === 'connect') return 'ack';
    if (method === 'get_public_key') return member.pubkey;
    if (method === 'ping') return 'pong';
    if (method === 'sign_event') return JSON.stringify(sign(member, JSON.parse(params[0]!)));
    return '';
  };
  await new Promise<void>((resolve) => {
    pool.subscribe(
      [relay],
      { kinds: [KIND], '#p': [own.pubkey] },
      {
        onauth: async (draft) => finalizeEvent(draft, own.secret),
        oneose: () => resolve(),
        onevent: ({ pubkey, content }) => {
          const key = nip44.getConversationKey(own.secret, pubkey);
          const request = JSON.parse(nip44.decrypt(content, key)) as Request;
          const reply = JSON.stringify({ id: request.id, result: answer(request) });
          const event = sign(own, { kind: KIND, tags: [['p', pubkey]], content: nip44.encrypt(reply, key) });
          void Promise.allSettled(pool.publish([relay], event));
        },
      },
    );
  });
  const query = new URLSearchParams({ relay, secret: 'once' });
  return { address: `bunker://${own.pubkey}?${query}`, close: () => pool.destroy() };
}
