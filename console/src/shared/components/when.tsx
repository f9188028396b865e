/** A time: how long ago, with the exact time on hover. */
import { dateTime, relative } from '../format.js';
import { useT } from '../i18n.js';

/** `at` in milliseconds. */
export function When({ at }: { readonly at: number | null | undefined }) {
  useT();
  if (at === null || at === undefined) return <>–</>;
  return (
    <time dateTime={new Date(at).toISOString()} title={dateTime(at)}>
      {relative(at)}
    </time>
  );
}
