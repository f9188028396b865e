/** Erasures, certificates and alarms, each on a tab of its own (`?tab=`); one erasure is `?erasure=`. */
import { Alert, Anchor, Badge, Button, Switch, Tabs, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { api, dataOf, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { flag, oneOf, text, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { Alarms } from './alarms.js';
import { Certificates } from './certificates.js';
import { ERASURES_KEY, type Erasure, stageColor } from './data.js';
import { ErasureDrawer } from './erasure.js';
import { EraseCommunity } from './start.js';
import './texts.js';

const TABS = ['erasures', 'certificates', 'alarms'] as const;
const filters = {
  tab: oneOf(TABS),
  open: flag,
  erasure: text,
  start: flag,
};

/** 403 is an answer too: only operators of the node see the communities. */
function useIsNodeOperator(isEnabled: boolean): boolean {
  const query = useQuery({
    queryKey: ['communities', 'may'],
    queryFn: () =>
      dataOf(api.GET('/v1/admin/communities', { params: { query: { limit: 1 } } })).then(
        () => true,
        () => false,
      ),
    enabled: isEnabled,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return query.data ?? false;
}

export default function Erasures() {
  const t = useT();
  const may = useMay('operator');
  const mayEraseCommunities = useIsNodeOperator(may);
  const [{ tab = may ? 'erasures' : 'certificates', open = false, erasure, start = false }, setFilters] =
    useFilters(filters);
  const shown = may ? TABS : (['certificates'] as const);
  return (
    <>
      <PageHead title={t('erasures:title')} about={t('erasures:about')}>
        {mayEraseCommunities && (
          <Button variant="default" onClick={() => setFilters({ start: true })}>
            {t('erasures:start')}
          </Button>
        )}
      </PageHead>
      {!may && (
        <Alert variant="light" mb="md" role="note">
          {t('erasures:forOperators')}
        </Alert>
      )}
      <Tabs
        value={may ? tab : 'certificates'}
        keepMounted={false}
        onChange={(value) => setFilters({ tab: TABS.find((one) => one === value) })}
      >
        <Tabs.List mb="md">
          {shown.map((one) => (
            <Tabs.Tab key={one} value={one}>
              {t(`erasures:tab.${one}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {may && (
          <Tabs.Panel value="erasures">
            <Switch
              mb="md"
              label={t('erasures:onlyOpen')}
              checked={open}
              onChange={(event) => setFilters({ open: event.currentTarget.checked || undefined })}
            />
            <ErasureList isOpen={open} onChosen={(id) => setFilters({ erasure: id })} />
          </Tabs.Panel>
        )}
        <Tabs.Panel value="certificates">
          <Certificates />
        </Tabs.Panel>
        {may && (
          <Tabs.Panel value="alarms">
            <Alarms />
          </Tabs.Panel>
        )}
      </Tabs>
      {may && <ErasureDrawer erasureId={erasure} onClose={() => setFilters({ erasure: undefined })} />}
      {mayEraseCommunities && (
        <EraseCommunity
          opened={start}
          onClose={() => setFilters({ start: undefined })}
          onStarted={(id) => setFilters({ start: undefined, erasure: id })}
        />
      )}
    </>
  );
}

interface ErasureListProps {
  readonly isOpen: boolean;
  readonly onChosen: (id: string) => void;
}

export function Subject({ erasure }: { readonly erasure: Erasure }) {
  const t = useT();
  if (erasure.type === 'community') return <>{t('erasures:wholeCommunity', { slug: erasure.community })}</>;
  if (erasure.pubkey === null) return <>{t('erasures:erased')}</>;
  return <Someone pubkey={erasure.pubkey} />;
}

function ErasureList({ isOpen, onChosen }: ErasureListProps) {
  const t = useT();
  const list = useList(
    [...ERASURES_KEY, 'list', isOpen],
    (cursor) =>
      dataOf(
        api.GET('/v1/admin/erasures', {
          params: { query: { limit: 100, cursor, open: isOpen ? 'true' : 'false' } },
        }),
      ),
    { refetchInterval: 5_000 },
  );
  const columns: Column<Erasure>[] = [
    {
      label: t('erasures:stage'),
      show: ({ stage, erasure_id }) => (
        <Anchor component="button" type="button" onClick={() => onChosen(erasure_id)}>
          <Badge variant="dot" color={stageColor(stage)} tt="none">
            {t(`erasures:stages.${stage}`)}
          </Badge>
        </Anchor>
      ),
    },
    { label: t('erasures:subject'), show: (row) => <Subject erasure={row} /> },
    { label: t('erasures:cause'), isMinor: true, show: ({ cause }) => t(`erasures:causes.${cause}`) },
    { label: t('erasures:requested'), show: ({ requested_at }) => <When at={requested_at} /> },
    {
      label: t('erasures:rows'),
      isNumber: true,
      isMinor: true,
      show: ({ rows_deleted }) => <Text size="sm">{number(rows_deleted)}</Text>,
    },
  ];
  return (
    <DataTable
      label={t('erasures:list')}
      list={list}
      columns={columns}
      keyOf={({ erasure_id }) => erasure_id}
      empty={<Empty title={t('erasures:none')}>{t('erasures:noneAbout')}</Empty>}
    />
  );
}
