/**
 * The headers of every HTTP answer: no framing, no content sniffing, no referrer. Pages have policies of
 * their own.
 */
export const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
};
