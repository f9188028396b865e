/**
 * What each setting means, in Japanese. The API has the English meanings. A ceiling of the node, which only
 * limits a setting of communities, has no text of its own. A test compares the keys with the settings.
 */
export const MEANINGS_JA: Readonly<Record<string, string>> = {
  'relay.name': 'NIP-11 とトップページに表示する名前です。',
  'relay.description': 'NIP-11 とトップページに表示する説明です。',
  'relay.contact': 'オペレーターへの連絡先です（mailto: または https:）。',
  'relay.pubkey': 'オペレーターの公開鍵です（16 進数）。',
  'relay.icon': 'アイコンの URL です。',
  'relay.banner': 'バナーの URL です。',
  'relay.termsOfService': '利用規約の URL です。',
  'relay.privacyPolicy': 'プライバシーポリシーの URL です。',
  'relay.urls': '公開している WebSocket アドレスです。',
  'topic.mode':
    'required：イベントとフィルターにトピック（t、#t）が必要です。default：トピックのないイベントは全体トピックに入ります。open：トピックのない普通のリレーです。',
  'topic.namespace': 'トピック ID の接頭辞です。接頭辞が違う ID は別のトピックになります。',
  'topic.enabledMax': '同時に配信できるトピック数の上限です。',
  'topic.freeKinds': 'トピックが不要な kind です（数値と範囲）。',
  'auth.mode': 'required：クライアントの認証（NIP-42）が必要になり、非公開トピックには購読が必要です。',
  'auth.enforceAt':
    'auth.mode=required が有効になる時刻です（1970 年からの秒数）。0 はすぐに有効になります。',
  'auth.graceSeconds': 'すでに開いている接続が、認証なしで続けられる時間です。',
  'auth.timeoutSeconds': '認証が必要な接続を、認証がないまま閉じるまでの時間です。',
  'auth.tokenSeconds': 'HTTP API のトークンの有効期間です。',
  'auth.sessionHours': 'ブラウザーでサインインした状態が続く時間です。',
  'auth.privateKinds':
    '認証後に、作者と p タグの鍵だけに配信する kind です。どちらの認証モードでも有効です。',
  'p2p.gossip':
    'ノードで p2p.enabled が有効なとき、このコミュニティの公開トピックをほかのノードと交換します。',
  'events.missingD':
    'd タグのない addressable イベントの扱いです。拒否するか、d="" とみなします（NIP-01）。auto：topic.mode が required のとき拒否します。',
  'membership.list': 'メンバー一覧を誰でも読める形で公開します（NIP-43、kind 13534）。',
  'membership.invitesBy':
    'クライアントから招待を取得できる人です（NIP-43、kind 28935）。オペレーターのみ、またはメンバーも可能です。',
  'membership.inviteDays': 'クライアントから取得した招待の有効日数です。',
  'subscription.pendingMax': 'メンバー 1 人あたりの保留中の申請数の上限です。',
  'subscription.pendingTotalMax': '全メンバーの保留中の申請数の上限です。',
  'subscription.autoApproval':
    '審査なしで承認する申請です。なし、上限内のすべて、許可リストの鍵、招待のあるもの、から選びます。',
  'subscription.allowList': 'subscription.autoApproval=allow-list で承認する公開鍵です。',
  'retention.regularDays': '通常のイベントを保存する日数です。0 は無期限です。',
  'retention.historyDays':
    '置き換えられた版をオペレーターのために保存する日数です。0 は保存せず、forever は無期限です。',
  'retention.dedupeDays': 'イベントを削除した後、その ID を記憶する日数です。',
  'retention.outboxDays': '変更をアウトボックスに残す日数です。',
  'deletion.mode':
    'soft：作者が削除したイベントをすぐに隠し、deletion.auditDays の後に物理的に削除します。physical：すぐに物理的に削除します。',
  'deletion.auditDays': '削除されたイベントを、誰にも見えない状態でデータベースに残す日数です。',
  'deletion.keepRequestsDays':
    '削除の依頼とその記録を残す日数です。日数を指定すると、ID が忘れられた後（retention.dedupeDays）に、削除済みのイベントを再び送れるようになります。',
  'deletion.targetsPerDayMax':
    '作者 1 人の削除の依頼が 1 日に指定できる対象の数です。対象のない依頼は 1 つと数えます。',
  'moderation.undoDays': 'モデレーターが取り除いたイベントを元に戻せる日数です。その後は物理的に削除します。',
  'privacy.exportHours': '個人データのファイルをダウンロードできる時間です。',
  'privacy.exportBytesMax':
    '個人データのファイルの最大サイズです。それより大きいものは、オペレーターがコマンドで作成できます。',
  'privacy.exportsWaitingMax': '全メンバーの待機中の個人データ書き出しの上限です。',
  'erasure.memberGraceDays': 'メンバーの消去の申請から実行までの日数です。その間は取り消せます。',
  'erasure.communityGraceDays': 'このコミュニティの消去の申請から実行までの日数です。その間は取り消せます。',
  'erasure.auditLog': '消去するメンバーの名前がある監査ログの行の扱いです。',
  'erasure.auditKeepDays': 'erasure.auditLog=keep のとき、監査ログの行を削除するまでの日数です。',
  'capacity.maxEvents':
    '配信するイベント数（削除の依頼を除く）の上限です。近づくと受け付けを減らし、達すると古いものから削除します。0 は上限なしです。',
  'capacity.maxBytes':
    '配信するイベント（削除の依頼を除く）の JSON のバイト数の上限です。段階は同じです。0 は上限なしです。',
  'capacity.backfillSeconds':
    'これより古いイベントは過去のイベントとみなし、容量が不足すると最初に拒否します。',
  'capacity.lagSecondsMax':
    '検索などの処理がこの秒数遅れると過去のイベントを拒否し、2 倍遅れると優先度の低い投稿も拒否します。0 は拒否しません。',
  'search.kinds': '検索できる kind です（数値と範囲）。非公開の kind は検索できません。',
  'search.freshnessDays': '投稿の新しさの点数が半分になるまでの日数です。',
  'search.freshnessWeight': '新しさが点数を上げる度合いです。0 は考慮しません。',
  'search.popularityWeight': '返信、リポスト、リアクションが点数を上げる度合いです。0 は考慮しません。',
  'trust.windowDays': '通報、ラベル、交流を信頼度に数える日数です。',
  'trust.reportsFull': '定着したメンバーの通報とラベルがいくつで、リスクの点数が最大になるかです。',
  'trust.densityFull': '定着したメンバーとのつながりがいくつで、交流の密度が最大になるかです。',
  'trust.establishedMin':
    '定着したとみなすために、何人の定着したメンバーとのつながりが必要かです。それより少ない人数では、点数は 10 分の 1 以上変わりません。',
  'trust.foundingDays':
    'コミュニティの最初のこの日数に現れた鍵は創設者とみなし、そのつながりを数えます。0：創設者はなく、承認されたメンバーだけが最初から定着しています。',
  'trust.kindWeights': 'p タグを交流として数える kind と、1 回あたりの重みです。',
  'trust.reporters':
    '重みを持つ通報です。定着したメンバーのもの、またはオペレーターが承認したメンバーのものだけです。',
  'trust.assertionDays': '公開した点数が失効するまでの日数です。ノードはその前に更新します。',
  'trust.publish': '点数を署名付きで公開します（NIP-85）。',
  'sync.peers': 'ノードが定期的にイベントを交換するリレーです（"minato peers" で編集します）。',
  'limits.messageBytesMax': 'クライアントが送れるフレームの最大サイズです。',
  'limits.eventBytesMax': 'イベントの最大サイズです（JSON）。',
  'limits.listBytesMax':
    'フォローリスト（kind 3）、リスト（10000–19999）、addressable イベント（30000–39999）の最大サイズです（JSON）。',
  'limits.tagsMax': '1 つのイベントのタグ数の上限です。',
  'limits.tagBytesMax': '1 つのイベントのタグ全体のバイト数の上限です（JSON）。',
  'limits.subscriptionsMax': '1 つの接続で開ける購読の上限です。',
  'limits.subscriptionValuesMax':
    '1 つの接続の、開いている購読と待っている COUNT のフィルターにある値の数の上限です。',
  'limits.connectionsPerAddressMax':
    '1 つのアドレスからの接続数の上限です。このマシン上のクライアントは対象外です。',
  'limits.filtersMax': '1 つの REQ または COUNT のフィルター数の上限です。',
  'limits.filterValuesMax': '1 つのフィルターの値の数の上限です（全項目の合計）。',
  'limits.limitDefault': 'limit のないフィルターに返すイベント数です。',
  'limits.limitMax': '1 つのフィルターに返すイベント数の上限です。大きい limit はこの値に下げます。',
  'limits.subscriptionIdLengthMax': '購読 ID の最大の長さです。',
  'limits.countMax': 'COUNT はこの数まで正確で、それを超えると概数になります。',
  'limits.negentropySessionsMax':
    '1 つの接続で開ける negentropy（NIP-77）セッションの上限です。0 は negentropy を使いません。',
  'limits.negentropyRecordsMax':
    '1 つの negentropy セッションのイベント数の上限です。これを超えるフィルターは拒否します。',
  'limits.createdAheadSecondsMax': 'created_at が未来であってよい秒数です。',
  'limits.createdBehindSecondsMax': 'created_at が過去であってよい秒数です。0 は制限なしです。',
  'limits.powBitsMin': 'イベント ID の先頭に必要なゼロのビット数です（NIP-13 のプルーフ・オブ・ワーク）。',
  'rate.eventsPerSecond': '1 つのアドレスと 1 人の作者が 1 秒に送れるイベント数です。0 は制限なしです。',
  'rate.eventsBurst': '制限がかかる前に、一度に送れるイベント数です。',
  'rate.queriesPerSecond':
    '1 つのアドレスと 1 つの認証済みの鍵が 1 秒に送れる REQ と COUNT です。0 は制限なしです。',
  'rate.queriesBurst': '制限がかかる前に、一度に送れる REQ と COUNT です。',
  'rate.connectionsPerSecond':
    '1 つのアドレスからの 1 秒あたりの新しい接続と、1 つの鍵の認証です。0 は制限なしです。',
  'rate.connectionsBurst': '一度に開ける新しい接続数です。',
  'rate.httpPublicPerSecond':
    '認証のいらない API に、1 つのアドレスが 1 秒に送れる要求です。0 は制限なしです。',
  'rate.httpPublicBurst': '認証のいらない API に、一度に送れる要求です。',
  'rate.httpMemberPerSecond':
    'メンバーの API 要求の 1 秒あたりの数です（アドレスごと、鍵ごと）。0 は制限なしです。',
  'rate.httpMemberBurst': 'メンバーが API に一度に送れる要求です。',
  'rate.httpAdminPerSecond':
    'オペレーターの API 要求の 1 秒あたりの数です（アドレスごと、鍵ごと）。0 は制限なしです。',
  'rate.httpAdminBurst': 'オペレーターが API に一度に送れる要求です。',
  'rate.subscriptionRequestsPerHour':
    '1 時間あたりのトピックの申請数です（アドレスごと、鍵ごと）。0 は制限なしです。',
  'rate.deletionRequestsPerHour':
    '1 つのアドレスから 1 時間に送れる、削除と消滅（vanish）の依頼の数です（種類ごと、重さで数えます）。署名した鍵は問いません。0 は制限なしです。',
  'rate.exemptLoopback': 'このマシン上のクライアントには頻度の制限をかけません。',
  'node.rate.exemptLoopback':
    'このマシン上のクライアントを頻度の制限から外すこと（rate.exemptLoopback）を、コミュニティに許可するかどうかです。',
  'node.capacity.maxEvents':
    '1 つのコミュニティが配信するイベント数（削除の依頼を除く）の上限です（capacity.maxEvents）。0 は上限なしです。',
  'node.capacity.maxBytes':
    '1 つのコミュニティが配信するイベント（削除の依頼を除く）のバイト数の上限です（capacity.maxBytes）。0 は上限なしです。',
  'node.communitySharePercent':
    '開いているフィルターの値のうち、1 つのコミュニティが使える割合です。コミュニティが 1 つだけなら全部使えます。',
  'node.outboxStreamsMax':
    '全コミュニティで開けるアウトボックスのストリーム数です。消去の進行状況のストリームも同じ数です。',
  'node.outboxStreamsPerCommunityMax':
    '1 つのコミュニティで開ける数です。node.outboxStreamsMax の 4 分の 1 は既定のコミュニティのために空けておきます。',
  'node.memoryWindowMB':
    '各リレーのメモリーに置く、全コミュニティの最新イベントとその索引の大きさです（MiB）。0 は置きません。',
  'node.syncPrivatePeers':
    '同期先（sync.peers、ゴシップのチケット）に、このマシンやプライベートネットワークのアドレスを許すかどうかです。',
  'node.diskSharePercent':
    'ディスクの空きが少ないとき、全体のこの割合を超えて保存しているコミュニティの投稿を拒否します。',
  'node.diskFreeMinPercent':
    '内蔵の PostgreSQL で、ディスクの空きがこの割合を下回ると投稿を拒否します。0 は拒否しません。',
  'node.diskFreeMinBytes': '同じ条件をバイト数で指定します。大きいほうが有効です。0 は割合だけを使います。',
  'p2p.enabled': '公開トピックのイベントを iroh-gossip でほかのノードと交換します。UDP ポートが開きます。',
  'p2p.bind': 'ゴシップが使う IP アドレスです。127.0.0.1 はこのマシンの中だけです。',
  'p2p.port': 'ゴシップの UDP ポートです。0 は起動のたびに空いているポートを使います。',
  'p2p.announce':
    'チケットに追加で載せるアドレス（例：192.0.2.1:7448）です。NAT の内側のマシンのために使います。',
  'p2p.peers': 'ほかのノードのチケットです。ここからゴシップを始め、そのリレーから欠落を補います。',
  'p2p.discovery': 'iroh の探索サービスにこのノードのアドレスを公開し、相手のアドレスもそこで調べます。',
  'p2p.topicsMax': 'このノードが参加するゴシップのトピック数の上限です（全コミュニティの合計）。',
  'p2p.messagesPerSecond':
    '1 つの相手から 1 秒間に受け取るメッセージ数です。短時間ならその 10 倍まで受け取ります。大きなイベントは複数のメッセージになります。',
  'p2p.sendPerSecond':
    'このノードが 1 秒間に送るメッセージ数です。遅れた相手はメッセージを失うため、残りはアウトボックスで待ちます。',
  'p2p.invalidPerMinute':
    '1 つの相手から受け取る、壊れた、または偽造されたメッセージ数の上限です。超えると p2p.dropSeconds の間、その相手を無視します。',
  'p2p.dropSeconds': '不正なメッセージが多すぎる相手を無視する時間です。',
};
