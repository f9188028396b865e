/** The host name of the request. It selects a community and proves nothing. */
export function hostOf(headers: { readonly host?: string | undefined }): string | undefined {
  return headers.host?.replace(/:\d+$/, '').toLowerCase();
}
