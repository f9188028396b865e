/** Server-sent events, for as long as a component is shown. The browser connects again by itself. */
import { useEffect, useRef, useState } from 'react';
import { prefix } from './place.js';

export type LiveState = 'connecting' | 'open' | 'waiting';

/** `path` begins with /v1; undefined: no connection. `onMessage` gets the parsed data of each message. */
export function useLive<T>(
  path: string | undefined,
  onMessage: (data: T, event: string) => void,
  events: readonly string[] = ['message'],
): LiveState {
  const [state, setState] = useState<LiveState>('connecting');
  const latest = useRef(onMessage);
  latest.current = onMessage;
  const names = events.join(' ');
  useEffect(() => {
    if (path === undefined) return;
    const source = new EventSource(prefix + path);
    source.onopen = () => setState('open');
    source.onerror = () => setState('waiting');
    for (const name of names.split(' '))
      source.addEventListener(name, (message) =>
        latest.current(JSON.parse((message as MessageEvent<string>).data) as T, name),
      );
    return () => source.close();
  }, [path, names]);
  return state;
}
