/** What an instance serves over a socket, against the model (I1, I4, I5, I6, I7, I13, I16). */
import type { VerifiedEvent } from 'nostr-tools/pure';
import { type Frame, pathOf, Socket } from '../clients/socket.js';
import type { Expected } from '../model.js';
import { COMMUNITIES } from '../plan.js';
import type { Violations } from '../violations.js';

const ANSWER_MS_MAX = 60_000;
const KINDS = [0, 1, 5, 10_002, 30_023];

export interface ViewOptions {
  readonly port: number;
  readonly community: number;
  readonly expected: Expected;
  /** Every id that was sent anywhere. */
  readonly ids: readonly string[];
  readonly violations: Violations;
  readonly nameOf: (id: string) => string;
}

/** False: a query was not answered; it is repeated. */
export async function checkView(options: ViewOptions): Promise<boolean> {
  const { port, community, expected, ids, violations, nameOf } = options;
  const about = `${COMMUNITIES[community]} at port ${port}`;
  const all = await query(port, pathOf(community), { kinds: KINDS, limit: 5_000 });
  const named = await query(port, pathOf(community), { ids, limit: 5_000 });
  if (all === undefined || named === undefined) return false;
  const isKnown = ({ id }: VerifiedEvent) => !expected.open.has(id);
  for (const [what, events] of [
    ['by kinds', all],
    ['by ids', named],
  ] as const) {
    const seen = new Set(events.filter(isKnown).map(({ id }) => id));
    if (seen.size + events.filter((event) => !isKnown(event)).length !== events.length)
      violations.add('I10', `${about}, ${what}: an event came twice in one answer`);
    violations.same(
      'I1 I4 I5 I6',
      `${about}, ${what}`,
      { expected: new Set(expected.served.keys()), seen },
      nameOf,
    );
  }
  return true;
}

/** The stored events of a REQ; undefined if it was refused or not answered. */
export async function query(
  port: number,
  path: string,
  filter: object,
): Promise<VerifiedEvent[] | undefined> {
  const events: VerifiedEvent[] = [];
  let end: (isComplete: boolean) => void = () => undefined;
  const ended = new Promise<boolean>((resolve) => {
    end = resolve;
  });
  const timer = setTimeout(() => end(false), ANSWER_MS_MAX);
  const socket = await Socket.open(port, path, {
    onFrame: (frame: Frame) => {
      if (frame[0] === 'EVENT') events.push(frame[2] as VerifiedEvent);
      if (frame[0] === 'EOSE') end(true);
      if (frame[0] === 'CLOSED') end(false);
    },
    onClose: () => end(false),
  }).catch(() => undefined);
  if (socket === undefined) end(false);
  socket?.send(['REQ', 'all', filter]);
  const isComplete = await ended;
  clearTimeout(timer);
  socket?.cut();
  return isComplete ? events : undefined;
}
