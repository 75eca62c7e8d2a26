"""The flags and preferences of Chromium, with which it has no window and no background traffic, and sends every request through a proxy."""

from typing import Any

FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"),
    # The first window would start a page process that no stage uses.
    "--no-startup-window",
    *(
        "--window-size=1280,800",
        "--hide-crash-restore-bubble",
        "--disable-smooth-scrolling",
        "--mute-audio",
        "--disable-gpu",
    ),
    *("--password-store=basic", "--use-mock-keychain", "--disable-extensions", "--disable-default-apps"),
    *("--disable-search-engine-choice-screen", "--force-color-profile=srgb", "--disable-field-trial-config"),
    # Throttled timers would make pages in the background miss their deadlines.
    *("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows"),
    *("--disable-renderer-backgrounding", "--disable-ipc-flooding-protection", "--disable-hang-monitor"),
    # Turn off traffic that no page asked for.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-pings"),
    *(
        "--disable-client-side-phishing-detection",
        "--disable-domain-reliability",
        "--disable-breakpad",
        "--disable-crash-reporter",
    ),
    *("--metrics-recording-only", "--disable-component-extensions-with-background-pages"),
    (
        "--disable-features=Translate,OptimizationHints,OptimizationGuideModelDownloading,MediaRouter,"
        "DialMediaRouteProvider,AutofillServerCommunication,CertificateTransparencyComponentUpdater,HttpsUpgrades,"
        "InterestFeedContentSuggestions,GlobalMediaControls,PaintHolding,LensOverlay,NetworkTimeServiceQuerying,Prerender2,"
        "PreconnectToSearch,SearchEnginePreconnector,SearchEnginePreconnector2,LoadingPredictorUseOptimizationGuide,"
        "AimEnabled,AimServerEligibilityEnabled,AimServerRequestOnStartupEnabled,AimServerRequestOnIdentityChangeEnabled,"
        # A page process in reserve would be started while the first page is loaded, and delay it.
        "SpareRendererForSitePerProcess"
    ),
    # Every request goes through the proxy, also those to this machine. Names are looked up by the proxy only.
    *("--proxy-bypass-list=<-loopback>", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
    *(
        "--dns-prefetch-disable",
        "--disable-quic",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # the same flag in earlier versions of Chromium
    ),
    *("--gcm-checkin-url=about:blank", "--allow-browser-signin=false", "--gaia-url=http://127.0.0.1:9"),
    "--log-level=3",
)
"""The flags of every browser."""

CONFINED_FLAGS = ("--no-sandbox", "--in-process-gpu", "--enable-features=NetworkServiceInProcess2")
"""Further flags of a browser in Holdfast's sandbox, which replaces Chromium's own. Graphics and network run in the browser's own process,
because no sandbox would separate their processes from it. Pages still have processes of their own."""

_DENIED_PERMISSIONS = (
    *(
        "geolocation",
        "notifications",
        "media_stream_camera",
        "media_stream_mic",
        "midi_sysex",
        "clipboard",
        "sensors",
    ),
    *(
        "usb_guard",
        "serial_guard",
        "hid_guard",
        "bluetooth_guard",
        "bluetooth_scanning",
        "file_system_write_guard",
    ),
    *(
        "window_placement",
        "local_fonts",
        "idle_detection",
        "vr",
        "ar",
        "payment_handler",
        "camera_pan_tilt_zoom",
    ),
)

PREFERENCES: dict[str, Any] = {
    "net": {"network_prediction_options": 2},  # connect to nothing in advance
    "webrtc": {"ip_handling_policy": "disable_non_proxied_udp"},
    "search": {"suggest_enabled": False},
    "signin": {"allowed": False, "allowed_on_next_startup": False},
    "safebrowsing": {"enabled": False},
    "alternate_error_pages": {"enabled": False},
    "credentials_enable_service": False,
    "translate": {"enabled": False},
    # 2 denies a permission without asking: nobody sees the browser's questions, and an open question blocks all clicks.
    "profile": {"default_content_setting_values": dict.fromkeys(_DENIED_PERMISSIONS, 2)},
    "hardware": {"screen_capture_enabled": False},
    # A PDF becomes a download, because the text in the browser's own viewer cannot be read.
    "plugins": {"always_open_pdf_externally": True},
}
