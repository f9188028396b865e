/** How much waits for moderators, as numbers beside the tabs. */
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { number } from '../../../shared/format.js';

const READ_AGAIN_MS = 15_000;

export function useWaiting() {
  return useQuery({
    queryKey: ['waiting'],
    queryFn: () => dataOf(api.GET('/v1/admin/moderation/waiting')),
    refetchInterval: READ_AGAIN_MS,
  }).data;
}

/** Reads a list again when the number of waiting cases has changed. */
export function useReadAgain(read: () => unknown): void {
  const waiting = useWaiting();
  const known = waiting && `${upTo(waiting.open)} ${upTo(waiting.held)} ${upTo(waiting.appealed)}`;
  const before = useRef(known);
  useEffect(() => {
    if (before.current !== undefined && before.current !== known) read();
    before.current = known;
  }, [known, read]);
}

/** "7", or "100+" when the count stopped. */
export const upTo = ({ count, more }: { readonly count: number; readonly more: boolean }): string =>
  `${number(count)}${more ? '+' : ''}`;
