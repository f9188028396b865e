/** The lines of the log that the page holds: a bounded number, the newest first. */
import { useEffect, useRef, useState } from 'react';
import { type LiveState, useLive } from '../../../shared/live.js';

export interface Line {
  readonly position: number;
  readonly time: string;
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const LINES_MAX = 2_000;
const FIRST_LINES = 500;
/** Lines that come within this time are shown together. */
const GATHER_MS = 150;

interface Filter {
  readonly level: string;
  readonly text: string;
}

export interface Lines {
  readonly lines: readonly Line[];
  /** Lines that wait while the page is paused. */
  readonly waiting: number;
  readonly state: LiveState;
  clear(): void;
}

export function useLogLines({ level, text }: Filter, isPaused: boolean, isOn: boolean): Lines {
  const [lines, setLines] = useState<readonly Line[]>([]);
  const [waiting, setWaiting] = useState(0);
  const held = useRef<Line[]>([]);
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const path = `/v1/admin/log?${new URLSearchParams({ level, text, last: String(FIRST_LINES) })}`;
  // Another filter begins with no lines.
  useEffect(() => {
    held.current = [];
    setLines([]);
    setWaiting(0);
  }, [path]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (paused.current) return setWaiting(held.current.length);
      if (held.current.length === 0) return;
      const arrived = held.current.splice(0).reverse();
      setWaiting(0);
      setLines((before) => {
        // After a reconnect the node may send lines again.
        const newest = before[0]?.position ?? 0;
        return [...arrived.filter(({ position }) => position > newest), ...before].slice(0, LINES_MAX);
      });
    }, GATHER_MS);
    return () => clearInterval(timer);
  }, []);
  const state = useLive<Line>(
    isOn ? path : undefined,
    (line, event) => {
      if (event !== 'line') return;
      held.current.push(line);
      if (held.current.length > LINES_MAX) held.current.shift();
    },
    ['line', 'closed'],
  );
  return { lines, waiting, state, clear: () => setLines([]) };
}
