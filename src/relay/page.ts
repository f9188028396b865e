/**
 * What a browser sees at the relay's address: the facts about the community as plain HTML. With the API they
 * stand in the members' page, for readers without JavaScript; without it they are a page of their own, with
 * one small script for the count. No outside requests.
 */
import { createHash } from 'node:crypto';
import type { Settings } from '../communities/rules-settings.js';
import { escapeHtml } from '../events/rules/text.js';
import { SOFTWARE_VERSION } from '../node/version.js';
import { globalTopic } from '../topics/rules-id.js';

export interface Stats {
  readonly events: number;
  readonly connections: number;
  readonly subscriptions: number;
}

export interface PageContent {
  readonly settings: Settings;
  readonly nips: readonly number[];
  readonly address: string;
  readonly statsPath: string;
  /** Those in which something was posted lately. */
  readonly topics: readonly string[];
  /** Those that anybody may use. */
  readonly publicTopics: readonly string[];
  readonly stats: Stats;
}

const DESCRIPTION_LENGTH_MAX = 300;

const SCRIPT = `
const cells = document.querySelectorAll('[data-stat]');
const show = (stats) => {
  for (const cell of cells) cell.textContent = stats[cell.dataset.stat].toLocaleString('en');
};
const tick = async () => {
  try {
    const answer = await fetch(document.body.dataset.stats);
    if (answer.ok) show(await answer.json());
  } catch {}
};
setInterval(() => { if (!document.hidden) tick(); }, 3000);
`;

const STYLE = `
:root { color-scheme: light dark; --edge: #8884; --soft: #8882; --accent: #0b7285; }
@media (prefers-color-scheme: dark) { :root { --accent: #66d9e8; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 44rem; margin: 0 auto; padding: 2.5rem 1.2rem; }
h1 { margin: 0; font-size: 1.9rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
code, pre { font: 14px/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 6px; }
code { padding: .1rem .35rem; overflow-wrap: anywhere; } pre { padding: .8rem 1rem; overflow-x: auto; }
.address { font-size: 1.1rem; color: var(--accent); }
.stats { display: flex; gap: 2.5rem; margin: 1.5rem 0; flex-wrap: wrap; }
.stats b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
ul.topics { display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; list-style: none; }
footer { margin-top: 3rem; border-top: 1px solid var(--edge); padding-top: .8rem; }
footer { font-size: .85rem; opacity: .75; }
`;

const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
export const PAGE_POLICY = [
  "default-src 'none'",
  `script-src ${hash(SCRIPT)}`,
  `style-src ${hash(STYLE)}`,
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

export function renderPage(content: PageContent): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(content.settings['relay.name'])}</title>
<style>${STYLE}</style>
</head>
<body data-stats="${escapeHtml(content.statsPath)}">
${renderFacts(content)}<script>${SCRIPT}</script>
</body>
</html>
`;
}

/** The members' page with the name of the community, and its facts for readers without JavaScript. */
export function fillMembersPage(html: string, content: PageContent): string {
  const { settings } = content;
  const description = escapeHtml(settings['relay.description'].slice(0, DESCRIPTION_LENGTH_MAX));
  const head = `<title>${escapeHtml(settings['relay.name'])}</title>
<meta name="description" content="${description}">`;
  const facts = `<style nonce="__NONCE__">${STYLE}</style>\n${renderFacts(content)}`;
  // By functions: in a replacement text, `$` would have a meaning.
  return html.replace(/<title>.*?<\/title>/, () => head).replace('<!-- about -->', () => facts);
}

function renderFacts({
  settings,
  nips,
  address,
  topics,
  publicTopics,
  stats,
}: Omit<PageContent, 'statsPath'>): string {
  const mode = settings['topic.mode'];
  const open = mode === 'open';
  const example = publicTopics[0] ?? globalTopic(settings['topic.namespace']);
  const asked = { kinds: [1], ...(mode === 'required' ? { '#t': [example] } : {}), limit: 10 };
  return `<h1>${escapeHtml(settings['relay.name'])}</h1>
<p>${escapeHtml(settings['relay.description'])}</p>
<p class="address"><code>${escapeHtml(address)}</code></p>
<div class="stats">
${stat('events', 'events stored', stats)}
${stat('connections', 'clients connected', stats)}
${stat('subscriptions', 'open subscriptions', stats)}
</div>
<h2>How to connect</h2>
<p>Topic mode: <code>${mode}</code>. ${HOW_TO_CONNECT[mode]}</p>
<pre>["REQ","hello",${escapeHtml(JSON.stringify(asked))}]</pre>
<h2>Topics</h2>
${open ? '' : publicList(publicTopics)}${topicList(topics, open)}
<h2>What it speaks</h2>
<p>${nips.map((nip) => `NIP-${String(nip).padStart(2, '0')}`).join(', ')}.
The limits are in the relay's information document: request this address with
<code>Accept: application/nostr+json</code>.</p>
${contact(settings)}
<footer>Minato ${SOFTWARE_VERSION}, a community node for Nostr</footer>
`;
}

const HOW_TO_CONNECT: Record<Settings['topic.mode'], string> = {
  open: 'This relay is open: add the address above to any Nostr client.',
  default:
    'Add the address above to any Nostr client. Posts that name no topic of this relay belong to the ' +
    'global topic, hashtags are plain tags, and a filter without <code>#t</code> reads every topic that ' +
    'you may read.',
  required:
    'This relay works by topic: a client names one in a <code>t</code> tag when it posts and in ' +
    '<code>#t</code> when it reads. (An operator who wants any Nostr client to work here sets ' +
    '<code>topic.mode</code> to <code>default</code>, or to <code>open</code> for a plain relay.)',
};

function stat(key: keyof Stats, label: string, stats: Stats): string {
  return `<div><b data-stat="${key}">${stats[key].toLocaleString('en')}</b>${label}</div>\n`;
}

function topicList(topics: readonly string[], open: boolean): string {
  if (topics.length === 0) return `<p>Nothing has been posted ${open ? 'with a topic ' : ''}yet.</p>`;
  return `<p>Recently posted in:</p>${listOf(topics)}`;
}

function publicList(topics: readonly string[]): string {
  if (topics.length === 0) return '<p>No topic is open to everybody; members request the others.</p>';
  return `<p>Open to everybody:</p>${listOf(topics)}`;
}

function listOf(topics: readonly string[]): string {
  const items = topics.map((topic) => `<li><code>${escapeHtml(topic)}</code></li>`);
  return `<ul class="topics">${items.join('')}</ul>`;
}

function contact(settings: Settings): string {
  return settings['relay.contact'] === ''
    ? ''
    : `<h2>Contact</h2>\n<p>${escapeHtml(settings['relay.contact'])}</p>`;
}
