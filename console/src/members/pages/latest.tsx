/** The newest posts of every topic, where filters need not name one. */
import { useT } from '../../shared/i18n.js';
import { FeedView } from '../parts/feed-view.js';
import { Head } from '../parts/head.js';

export default function Latest() {
  const t = useT();
  return (
    <>
      <Head title={t('home:latest')} about={t('home:latestAbout')} />
      <FeedView topic={undefined} />
    </>
  );
}
