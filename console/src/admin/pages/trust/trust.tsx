/** The trust in one person: both scores with what they are made of, their standing, ties and contacts. */
import {
  Anchor,
  Badge,
  Button,
  Grid,
  Group,
  Paper,
  Progress,
  SimpleGrid,
  Stack,
  Table,
  Text,
  Title,
} from '@mantine/core';
import { IconArrowLeft } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import type { paths } from '../../../shared/schema.js';
import { Someone } from '../../someone.js';
import './texts.js';

type Trust = paths['/v1/admin/trust/{pubkey}']['get']['responses'][200]['content']['application/json'];

export default function TrustPage() {
  const t = useT();
  const { pubkey = '' } = useParams({ strict: false }) as { pubkey?: string };
  const { data, error, refetch } = useQuery({
    queryKey: ['trust', pubkey],
    queryFn: () => dataOf(api.GET('/v1/admin/trust/{pubkey}', { params: { path: { pubkey } } })),
  });
  return (
    <>
      <PageHead title={t('trust:of')} about={<Someone pubkey={pubkey} to={`/members/${pubkey}`} />}>
        <Button
          component={Link}
          to="/trust"
          variant="subtle"
          size="xs"
          leftSection={<IconArrowLeft size={14} />}
        >
          {t('trust:back')}
        </Button>
        <Button component={Link} to={`/members/${pubkey}`} variant="default" size="xs">
          {t('trust:toMember')}
        </Button>
        <Button
          component={Link}
          to="/events"
          search={{ author: pubkey } as never}
          variant="default"
          size="xs"
        >
          {t('trust:toEvents')}
        </Button>
      </PageHead>
      {error !== null && <Failure error={error} retry={() => void refetch()} />}
      {error === null && data === undefined && <Loading />}
      {data !== undefined && <Whole trust={data} />}
    </>
  );
}

function Whole({ trust }: { readonly trust: Trust }) {
  const t = useT();
  const { report_based: risk, communication_density: density, window_days: days } = trust;
  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 6 }}>
        <Score title={t('trust:risk')} about={t('trust:riskAbout')} of={risk} days={days}>
          <Counts title={t('trust:reports')} about={t('trust:reportsAbout')} counts={risk.reports} />
          <Counts title={t('trust:labels')} counts={risk.labels} />
        </Score>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 6 }}>
        <Stack gap="lg">
          <Score title={t('trust:density')} about={t('trust:densityAbout')} of={density} days={days} />
          <Standing standing={trust.standing} />
        </Stack>
      </Grid.Col>
      <Grid.Col span={12}>
        <Card title={t('trust:ties')} about={t('trust:tiesAbout')}>
          <Ties ties={density.ties} />
        </Card>
      </Grid.Col>
      <Grid.Col span={12}>
        <Card title={t('trust:contacts')} about={t('trust:contactsAbout')}>
          <Contacts contacts={density.contacts} />
        </Card>
      </Grid.Col>
    </Grid>
  );
}

interface CardProps {
  readonly title: string;
  readonly about?: string;
  readonly children?: ReactNode;
}

function Card({ title, about, children }: CardProps) {
  return (
    <Paper withBorder p="lg" component="section" aria-label={title}>
      <Title order={2} size="h5">
        {title}
      </Title>
      {about !== undefined && (
        <Text size="sm" c="dimmed" mb="md">
          {about}
        </Text>
      )}
      {children}
    </Paper>
  );
}

interface ScoreProps extends CardProps {
  readonly of: Trust['report_based'] | Trust['communication_density'];
  readonly days: number;
}

function Score({ title, about, of, days, children }: ScoreProps) {
  const t = useT();
  const { rank, score, weight, full, computed_at: computedAt, assertion } = of;
  return (
    <Card title={title} {...(about === undefined ? {} : { about })}>
      <Group justify="space-between" align="baseline" mb={6}>
        <Text fz={28} fw={700} className="number">
          {t('trust:rank', { rank: number(rank) })}
        </Text>
        <Text size="xs" c="dimmed">
          {t('trust:higherIsBetter')}
        </Text>
      </Group>
      <Progress value={rank} aria-label={title} size="lg" mb="sm" />
      <Text size="sm" className="number">
        {t('trust:score', { score: number(score, 3) })} ·{' '}
        {t('trust:weight', { weight: number(weight, 2), full: number(full, 1) })}
      </Text>
      <Text size="sm" c="dimmed">
        {computedAt === null ? (
          t('trust:noGrounds', { days: number(days) })
        ) : (
          <>
            {t('trust:computed')} <When at={computedAt} />
          </>
        )}
      </Text>
      {assertion !== null && (
        <Anchor component={Link} to={`/events/${assertion}`} size="sm" underline="always">
          {t('trust:asserted')}
        </Anchor>
      )}
      {children}
    </Card>
  );
}

interface CountsProps {
  readonly title: string;
  readonly about?: string;
  readonly counts: Readonly<Record<string, number>>;
}

function Counts({ title, about, counts }: CountsProps) {
  const t = useT();
  const entries = Object.entries(counts);
  return (
    <Stack gap={4} mt="md">
      <Title order={3} size="h6">
        {title}
      </Title>
      {about !== undefined && (
        <Text size="xs" c="dimmed">
          {about}
        </Text>
      )}
      {entries.length === 0 ? (
        <Text size="sm">{t('trust:none')}</Text>
      ) : (
        <Group gap="xs">
          {entries.map(([name, count]) => (
            <Badge key={name} variant="dot" color="orange" tt="none">
              {t(`trust:reason.${name}`)} {number(count)}
            </Badge>
          ))}
        </Group>
      )}
    </Stack>
  );
}

function Standing({ standing }: { readonly standing: Trust['standing'] }) {
  const t = useT();
  return (
    <Card title={t('trust:standing')} about={t('trust:standingAbout')}>
      {standing === null ? (
        <Text size="sm">{t('trust:neverSeen')}</Text>
      ) : (
        <Stack gap="sm">
          <StandingState standing={standing} />
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="xs">
            <Text size="sm">
              {t('trust:firstSeen')}: <When at={standing.first_seen_at} />
            </Text>
            {standing.founder && (
              <Text size="sm" title={t('trust:founderText')}>
                {t('trust:founder')}
              </Text>
            )}
            {standing.approved && (
              <Text size="sm" title={t('trust:approvedText')}>
                {t('trust:approved')}
              </Text>
            )}
          </SimpleGrid>
        </Stack>
      )}
    </Card>
  );
}

function StandingState({ standing }: { readonly standing: NonNullable<Trust['standing']> }) {
  const t = useT();
  const { stands_from: from, taken_away: isTaken } = standing;
  if (isTaken) return <Text size="sm">{t('trust:takenAway')}</Text>;
  if (from === null) return <Text fw={600}>{t('trust:noStanding')}</Text>;
  return (
    <Text fw={600}>
      {t(from <= Date.now() ? 'trust:standsFrom' : 'trust:willStand')}: <When at={from} />
    </Text>
  );
}

function Ties({ ties }: { readonly ties: Trust['communication_density']['ties'] }) {
  const t = useT();
  if (ties.length === 0) return <Text size="sm">{t('trust:noTies')}</Text>;
  const now = Date.now();
  return (
    <Table.ScrollContainer minWidth={520}>
      <Table aria-label={t('trust:ties')} verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('trust:partner')}</Table.Th>
            <Table.Th ta="right">{t('trust:given')}</Table.Th>
            <Table.Th ta="right">{t('trust:got')}</Table.Th>
            <Table.Th ta="right">{t('trust:strength')}</Table.Th>
            <Table.Th>{t('trust:counts')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {ties.map((tie) => (
            <Table.Tr key={tie.pubkey}>
              <Table.Td>
                <Someone pubkey={tie.pubkey} to={`/trust/${tie.pubkey}`} />
              </Table.Td>
              <Table.Td className="number" ta="right">
                {number(tie.given, 2)}
              </Table.Td>
              <Table.Td className="number" ta="right">
                {number(tie.got, 2)}
              </Table.Td>
              <Table.Td className="number" ta="right">
                {number(tie.strength, 2)}
              </Table.Td>
              <Table.Td>
                <Counting from={tie.counts_from} now={now} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Counting({ from, now }: { readonly from: number | null; readonly now: number }) {
  const t = useT();
  if (from === null)
    return (
      <Text size="sm" c="dimmed">
        {t('trust:countsNot')}
      </Text>
    );
  return <Text size="sm">{from <= now ? t('trust:yes') : <When at={from} />}</Text>;
}

function Contacts({ contacts }: { readonly contacts: Trust['communication_density']['contacts'] }) {
  const t = useT();
  if (contacts.length === 0) return <Text size="sm">{t('trust:noContacts')}</Text>;
  return (
    <Table.ScrollContainer minWidth={480}>
      <Table aria-label={t('trust:contacts')} verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('trust:time')}</Table.Th>
            <Table.Th>{t('trust:event')}</Table.Th>
            <Table.Th ta="right">{t('trust:kind')}</Table.Th>
            <Table.Th ta="right">{t('trust:contactWeight')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {contacts.map((contact) => (
            <Table.Tr key={`${contact.event_id} ${contact.direction}`}>
              <Table.Td>
                <When at={contact.at} />
              </Table.Td>
              <Table.Td>
                <Anchor component={Link} to={`/events/${contact.event_id}`} size="sm" underline="always">
                  {t(`trust:direction.${contact.direction}`)} ·{' '}
                  <span className="mono">{contact.event_id.slice(0, 8)}…</span>
                </Anchor>
              </Table.Td>
              <Table.Td className="number" ta="right">
                {contact.kind}
              </Table.Td>
              <Table.Td className="number" ta="right">
                {number(contact.weight, 2)}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
