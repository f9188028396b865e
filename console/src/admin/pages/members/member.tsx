/** One member: the profile, and in tabs everything that the node knows about the key. */
import { Anchor, Button, Card, Group, Progress, SimpleGrid, Stack, Tabs, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { ApiError, api, dataOf } from '../../../shared/api.js';
import { Copy } from '../../../shared/components/copy.js';
import { EventText } from '../../../shared/components/event-text.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { oneOfOr, useFilters } from '../../../shared/filters.js';
import { date, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf, pubkeyOf, shortKey } from '../../../shared/keys.js';
import { adminBase } from '../../../shared/place.js';
import { useMay } from '../../session.js';
import { nameIn } from '../../someone.js';
import { Actions } from './actions.js';
import { StatusBadge } from './status.js';
import { Consents, Moderation, PersonalData, Topics, Usage } from './tabs.js';
import './texts.js';

const TABS = ['topics', 'usage', 'consents', 'moderation', 'data'] as const;
const filters = { tab: oneOfOr(TABS, 'topics') };
/** The least role that may read what a tab shows. */
const NEEDS = {
  topics: 'viewer',
  usage: 'viewer',
  consents: 'viewer',
  moderation: 'moderator',
  data: 'operator',
} as const;

const read = (pubkey: string) =>
  dataOf(api.GET('/v1/admin/members/{pubkey}', { params: { path: { pubkey } } }));
export type Member = Awaited<ReturnType<typeof read>>;

/** Null: the key is not a member. */
async function readOrNull(pubkey: string): Promise<Member | null> {
  try {
    return await read(pubkey);
  } catch (error) {
    if (error instanceof ApiError && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}

export default function MemberPage() {
  const t = useT();
  const params = useParams({ strict: false }) as { pubkey?: string };
  const pubkey = pubkeyOf(params.pubkey ?? '');
  if (pubkey === undefined)
    return (
      <>
        <PageHead title={t('members:title')} />
        <Empty title={t('members:noKey')}>{t('members:noKeyAbout')}</Empty>
      </>
    );
  return <Known key={pubkey} pubkey={pubkey} />;
}

function Known({ pubkey }: { readonly pubkey: string }) {
  const t = useT();
  const query = useQuery({ queryKey: ['members', 'one', pubkey], queryFn: () => readOrNull(pubkey) });
  const profiles = useQuery({
    queryKey: ['profiles', pubkey],
    queryFn: () => dataOf(api.GET('/v1/admin/profiles', { params: { query: { pubkeys: pubkey } } })),
  });
  if (query.isPending) return <Loading />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const member = query.data;
  const profile = member?.profile ?? profiles.data?.items[0]?.profile ?? null;
  const title = nameIn(profile) ?? member?.name ?? shortKey(pubkey);
  return (
    <>
      <Anchor component={Link} to="/members" size="sm">
        {t('members:back')}
      </Anchor>
      <PageHead
        title={title}
        about={
          <Group gap="xs">
            <span className="mono">{shortKey(pubkey)}</span>
            <Copy value={npubOf(pubkey)} label={t('members:copyNpub')} />
            {member === null ? t('members:notMember') : <StatusBadge member={member} />}
          </Group>
        }
      >
        <Actions pubkey={pubkey} member={member} title={title} />
      </PageHead>
      <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} mb="lg">
        <ProfileCard profile={profile} />
        <Membership member={member} pubkey={pubkey} />
        <TrustCard pubkey={pubkey} />
      </SimpleGrid>
      <Sections pubkey={pubkey} />
    </>
  );
}

function Fact({ label, children }: { readonly label: string; readonly children: ReactNode }) {
  return (
    <Group gap="md" wrap="nowrap" align="flex-start">
      <Text size="sm" c="dimmed" w={110} component="dt" flex="none">
        {label}
      </Text>
      <Text size="sm" component="dd" m={0} className="text">
        {children}
      </Text>
    </Group>
  );
}

function ProfileCard({ profile }: { readonly profile: Member['profile'] }) {
  const t = useT();
  return (
    <Card withBorder component="section">
      <Title order={2} size="h5" mb="sm">
        {t('members:profile')}
      </Title>
      {profile === null ? (
        <Text size="sm" c="dimmed">
          {t('members:noProfile')}
        </Text>
      ) : (
        <Stack gap={6} component="dl" m={0}>
          <Fact label={t('members:profileName')}>{profile.name ?? '–'}</Fact>
          <Fact label={t('members:displayName')}>{profile.display_name ?? '–'}</Fact>
          <Fact label={t('members:nip05')}>{profile.nip05 ?? '–'}</Fact>
          <Fact label={t('members:picture')}>{profile.picture ?? '–'}</Fact>
          <Fact label={t('members:aboutThem')}>
            {profile.about === null ? '–' : <EventText text={profile.about} short={240} />}
          </Fact>
        </Stack>
      )}
    </Card>
  );
}

function Membership({ member, pubkey }: { readonly member: Member | null; readonly pubkey: string }) {
  const t = useT();
  const seesNotes = useMay('moderator');
  const seesEvents = useMay('moderator');
  return (
    <Card withBorder component="section">
      <Title order={2} size="h5" mb="sm">
        {t('members:membership')}
      </Title>
      {member === null ? (
        <Text size="sm" c="dimmed">
          {t('members:notMemberAbout')}
        </Text>
      ) : (
        <Stack gap={6} component="dl" m={0}>
          <Fact label={t('members:since')}>{date(member.created_at)}</Fact>
          <Fact label={t('members:plan')}>{member.plan_id}</Fact>
          <Fact label={t('members:topics')}>
            {t('members:topicNumbers', {
              active: number(member.active_subscriptions),
              paused: number(member.paused_subscriptions),
              pending: number(member.pending_requests),
            })}
          </Fact>
          <Fact label={t('members:givenName')}>{member.name ?? '–'}</Fact>
          {seesNotes && <Fact label={t('members:note')}>{member.note ?? '–'}</Fact>}
        </Stack>
      )}
      {seesEvents && (
        <Button
          mt="md"
          style={{ alignSelf: 'flex-start' }}
          size="compact-sm"
          variant="default"
          component="a"
          href={`${adminBase}/events?author=${pubkey}`}
        >
          {t('members:toEvents')}
        </Button>
      )}
    </Card>
  );
}

function TrustCard({ pubkey }: { readonly pubkey: string }) {
  const t = useT();
  const { data } = useQuery({
    queryKey: ['trust', pubkey],
    queryFn: () => dataOf(api.GET('/v1/admin/trust/{pubkey}', { params: { path: { pubkey } } })),
  });
  return (
    <Card withBorder component="section">
      <Title order={2} size="h5" mb="sm">
        {t('members:trust')}
      </Title>
      <Stack gap="sm">
        <Rank label={t('members:trustReports')} rank={data?.report_based.rank} />
        <Rank label={t('members:trustTalk')} rank={data?.communication_density.rank} />
      </Stack>
      <Button
        mt="md"
        style={{ alignSelf: 'flex-start' }}
        size="compact-sm"
        variant="default"
        component={Link}
        to={`/trust/${pubkey}`}
      >
        {t('members:toTrust')}
      </Button>
    </Card>
  );
}

function Rank({ label, rank }: { readonly label: string; readonly rank: number | undefined }) {
  const t = useT();
  const text = rank === undefined ? '–' : t('members:trustRank', { rank: number(rank) });
  return (
    <div>
      <Group justify="space-between" mb={4}>
        <Text size="sm">{label}</Text>
        <Text size="sm" fw={600} className="number">
          {text}
        </Text>
      </Group>
      <Progress value={rank ?? 0} aria-label={`${label}: ${text}`} />
    </div>
  );
}

function Sections({ pubkey }: { readonly pubkey: string }) {
  const t = useT();
  const may = { viewer: true, moderator: useMay('moderator'), operator: useMay('operator') };
  const [{ tab }, setFilters] = useFilters(filters);
  const allowed = TABS.filter((name) => may[NEEDS[name]]);
  const shown = allowed.includes(tab) ? tab : 'topics';
  return (
    <Tabs
      value={shown}
      onChange={(next) => setFilters({ tab: (next ?? 'topics') as typeof tab })}
      keepMounted={false}
    >
      <Tabs.List aria-label={t('members:sections')} mb="md">
        {allowed.map((name) => (
          <Tabs.Tab key={name} value={name}>
            {t(`members:tabs.${name}`)}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value="topics">
        <Topics pubkey={pubkey} />
      </Tabs.Panel>
      <Tabs.Panel value="usage">
        <Usage pubkey={pubkey} />
      </Tabs.Panel>
      <Tabs.Panel value="consents">
        <Consents pubkey={pubkey} />
      </Tabs.Panel>
      <Tabs.Panel value="moderation">
        <Moderation pubkey={pubkey} />
      </Tabs.Panel>
      <Tabs.Panel value="data">
        <PersonalData pubkey={pubkey} />
      </Tabs.Panel>
    </Tabs>
  );
}
