/** Asks whose trust to show. */
import { IconShieldCheck } from '@tabler/icons-react';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { useT } from '../../../shared/i18n.js';
import { PersonForm } from './person-form.js';
import './texts.js';

export default function Start() {
  const t = useT();
  return (
    <>
      <PageHead title={t('trust:title')} about={t('trust:about')} />
      <Empty title={t('trust:start')} icon={<IconShieldCheck size={26} />} action={<PersonForm />}>
        {t('trust:startText')}
      </Empty>
    </>
  );
}
