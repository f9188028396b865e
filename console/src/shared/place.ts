/** Where this page is: the community of its path (`/c/<slug>`), and the addresses that follow from it. */
const slug = /^\/c\/([^/]+)/.exec(location.pathname)?.[1];

/** `/c/<slug>`, or nothing for the community of the host name. */
export const prefix = slug === undefined ? '' : `/c/${slug}`;
export const adminBase = `${prefix}/admin`;
export const membersBase = prefix === '' ? '/' : prefix;
/** The websocket of this community. */
export const relayUrl = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${prefix || '/'}`;
/** The node serves it; the API reference has it too. */
export const iconUrl = '/docs/static/icon.svg';
