/**
 * A certificate as a page to print: one sheet, without scripts and external resources. The page is for
 * people. What can be checked is the signed event, whose id and signature are on the page.
 */
import { npubEncode } from 'nostr-tools/nip19';
import type { NostrEvent } from '../../events/rules/event.js';
import { escapeHtml } from '../../events/rules/text.js';
import { type Certificate, certificateProblems, rowsOf } from './rules.js';

const STYLE = `
@page { size: A4; margin: 14mm; }
body { font: 10pt/1.4 system-ui, "Noto Sans JP", sans-serif; max-width: 186mm; margin: 0 auto; padding: 1rem;
  color: #111; background: #fff; }
h1 { font-size: 16pt; margin: 0 0 .2rem; }
h1 small { display: block; font-size: 11pt; font-weight: normal; color: #555; }
h2 { font-size: 10.5pt; margin: .9rem 0 .2rem; } small { color: #555; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .1rem .4rem .1rem 0; border-bottom: 1px solid #ccc; }
th { font-weight: normal; color: #555; width: 34%; } thead th { width: auto; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 8pt/1.3 ui-monospace, monospace; overflow-wrap: anywhere; } .all { font-size: 8pt; color: #555; }
.many { columns: 2; font-size: 8pt; } .many td { padding-top: 0; padding-bottom: 0; }
@media print { body { padding: 0; } tr { break-inside: avoid; } }
`;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const CAUSES: Record<Certificate['cause'], string> = {
  member: 'the member themselves / 本人',
  operator: 'an operator / 運営者',
  vanish: 'a request to vanish (NIP-62) / 消去要求 (NIP-62)',
  replay: 'an earlier certificate, after a restore / 復元後の再実行',
};

/** What is not a certificate has no page. */
export function certificatePage(event: NostrEvent): string | undefined {
  const { certificate } = certificateProblems(event);
  if (certificate === undefined) return undefined;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Certificate of erasure ${escapeHtml(certificate.erasure_id)}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>Certificate of erasure <small lang="ja">消去証明書</small></h1>
${about(certificate)}
${stores(certificate)}
${kept(certificate)}
${unacknowledged(certificate)}
${signature(event, certificate)}
</body>
</html>
`;
}

const time = (milliseconds: number) =>
  `${new Date(milliseconds).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
const row = (english: string, japanese: string, value: string) =>
  `<tr><th>${english} <small lang="ja">${japanese}</small></th><td>${value}</td></tr>`;
const heading = (english: string, japanese: string) =>
  `<h2>${english} <small lang="ja">${japanese}</small></h2>`;
const number = (value: number | null) => (value === null ? '–' : value.toLocaleString('en-US'));

function about(certificate: Certificate): string {
  const { subject, until } = certificate;
  return `<table>${[
    row('Erasure', '消去番号', `<code>${escapeHtml(certificate.erasure_id)}</code>`),
    row('Community', 'コミュニティ', escapeHtml(certificate.community)),
    row(
      'Erased',
      '対象',
      subject.type === 'member' ? 'a member / 会員' : 'the whole community / コミュニティ全体',
    ),
    row('Keyed hash of whom', '対象の鍵付きハッシュ', `<code>${subject.hash}</code>`),
    row('Asked for by', '依頼者', CAUSES[certificate.cause]),
    row('Asked for', '依頼', time(certificate.requested_at)),
    row('Nothing new was taken in from', '受付停止', time(certificate.fenced_at)),
    row('Counted', '計数', time(certificate.counted_at)),
    row('Found to be empty, completed', '不在確認・完了', time(certificate.completed_at)),
    ...(until === null ? [] : [row('Refused if signed up to', '再受付拒否の期限', time(until * 1_000))]),
  ].join('\n')}</table>`;
}

/** More of them are set in two columns, so that it stays one sheet. */
const MANY = 14;

const cell = (value: number | null) => `<td class="n">${number(value)}</td>`;
const column = (english: string, japanese: string) =>
  `<th class="n">${english} <small lang="ja">${japanese}</small></th>`;
const COLUMNS = [
  '<th>store <small lang="ja">保存先</small></th>',
  column('before', '前'),
  column('deleted', '削除'),
  column('gone otherwise', '他の経路'),
  column('after', '後'),
].join('');

/** Stores that held rows, one by one; the others by name. */
function stores(certificate: Certificate): string {
  const all = rowsOf(certificate);
  const held = all.filter(({ before, deleted }) => before !== 0 || deleted > 0);
  const empty = all.filter((store) => !held.includes(store));
  const rows = held.map(
    ({ name, before, deleted, otherwise, after }) =>
      `<tr><td>${escapeHtml(name)}</td>${[before, deleted, otherwise, after].map(cell).join('')}</tr>`,
  );
  const names = empty.map(({ name }) => escapeHtml(name)).join(', ');
  return `${heading('Stores', '保存先')}
<div${held.length > MANY ? ' class="many"' : ''}><table><thead><tr>${COLUMNS}</tr></thead>
<tbody>${rows.join('\n')}</tbody></table></div>
<p class="all">Before = deleted + gone otherwise + after.
Rows that were written during the erasure are in “before”.
<span lang="ja">前 = 削除 + 他の経路 + 後</span></p>
<p class="all">Counted as well, nothing there before and after
<span lang="ja">前後とも 0 件</span>: ${names || '–'}</p>`;
}

function kept({ kept: all }: Certificate): string {
  if (all.length === 0) return '';
  const rows = all.map(({ name, rows: count, until, why }) =>
    row(escapeHtml(name), '', `${number(count)}, until ${time(until)}: ${escapeHtml(why)}`),
  );
  return `${heading('Kept for a time', '期限付きの保存')}\n<table>${rows.join('\n')}</table>`;
}

function unacknowledged(certificate: Certificate): string {
  if (certificate.version === 1 || certificate.unacknowledged.length === 0) return '';
  const rows = certificate.unacknowledged.map(({ name, acknowledged, needed, limit_seconds }) =>
    row(
      escapeHtml(name),
      '',
      `acknowledged up to ${number(acknowledged)} of ${number(needed)}; ` +
        `waited for ${number(limit_seconds)} s`,
    ),
  );
  const words = heading(
    'Services outside that have not confirmed the deletion',
    '削除を確認していない外部サービス',
  );
  return `${words}\n<table>${rows.join('\n')}</table>`;
}

function signature({ id, pubkey, sig }: NostrEvent, { previous, software }: Certificate): string {
  const code = (text: string) => `<code>${escapeHtml(text)}</code>`;
  return `${heading('Signature', '署名')}
<table>${[
    row('Certificate (event id)', '証明書番号', code(id)),
    row('Signed by', '署名者', code(npubEncode(pubkey))),
    row('Signature', '署名', code(sig)),
    row('The certificate before it', '直前の証明書', previous === null ? '–' : code(previous)),
    row(
      'Made by',
      '作成',
      `${escapeHtml(software.name)} ${escapeHtml(software.version)}; ` +
        `check with ${code('minato certificate verify FILE')}`,
    ),
  ].join('\n')}</table>`;
}
